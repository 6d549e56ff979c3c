//! What an OpenWrt router knows of itself without measuring: its configuration, what netifd says of its interfaces, what
//! the modem's driver says of the line.
//!
//! [`Root`] reads, on the router itself or from a directory that looks like one. Everything else is a pure function of
//! what was read: [`network`] finds the WANs, [`sync`] the rates the modem reports, [`link`] the kind of link, [`doctor`] what
//! is wrong, [`mtu`] how large a packet each WAN takes.

pub mod command;
pub mod device;
pub mod doctor;
pub mod inventory;
pub mod link;
pub mod modem;
pub mod mtu;
pub mod network;
pub mod queue;
pub mod root;
pub mod settings;
pub mod state;
pub mod sync;
pub mod transfer;
pub mod uci;

pub use inventory::Inventory;
pub use root::Root;
