//! `sync` and `link` on routers in directories, and UCI against what the real `uci` program answered.

use serde_json::{Value, json};
use sqm_autotune::openwrt::Root;
use sqm_autotune::openwrt::uci::{self, Config};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
