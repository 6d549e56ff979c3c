//! What an OpenWrt router knows of itself without measuring: its configuration, what netifd says of its interfaces, what
//! the modem's driver says of the line.
//!
//! And it writes what a calibration has found: [`sqm`] says what would change, [`write`](mod@write) puts it in place, [`apply`] makes
//! sure that it ends in the old state or in the new one, [`service`] calls SQM's own programs, [`live`] judges what came of
//! it, [`schedule`] says when an unattended run is due.
//!
//! [`Root`] reads, on the router itself or from a directory that looks like one. Everything else is a pure function of
//! what was read: [`network`] finds the WANs, [`sync`] the rates the modem reports, [`link`] the kind of link, [`doctor`] what
//! is wrong, [`mtu`] how large a packet each WAN takes.

pub mod apply;
pub mod command;
pub mod device;
pub mod doctor;
pub mod history;
pub mod inventory;
pub mod link;
pub mod live;
pub mod modem;
pub mod mtu;
pub mod network;
pub mod queue;
pub mod redact;
pub mod root;
pub mod schedule;
pub mod service;
pub mod settings;
pub mod sqm;
pub mod state;
pub mod sync;
pub mod transfer;
pub mod uci;
pub mod write;

pub use inventory::Inventory;
pub use root::Root;
