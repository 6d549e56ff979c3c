//! A build without the router, as a simulation needs no more.

use super::Held;
use crate::cli::args::{LineArgs, RouterArgs, UsageError};
use crate::line::LineError;
use crate::openwrt::live::{Live, Probe};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub fn open(_args: &RouterArgs, _stop: Arc<AtomicBool>) -> Result<Held, UsageError> {
    Err(UsageError("this build has no router line: write --line sim:NAME, or build with --features router".into()))
}

pub fn restore() -> Result<Vec<String>, LineError> {
    Err(LineError::failed("restore a router", "this build has no router line"))
}

pub fn live(_device: &str) -> Result<Live, LineError> {
    Err(LineError::failed("read back what SQM has set", "this build has no router line"))
}

pub fn largest_packet(_: &[IpAddr], _device: &str, _most: u32) -> Result<Option<u32>, LineError> {
    Err(LineError::failed("ask how large a packet gets through", "this build has no router line"))
}

pub fn probe(_args: &LineArgs, _device: &str) -> Result<Option<Probe>, LineError> {
    Err(LineError::failed("measure the line", "this build has no router line"))
}
