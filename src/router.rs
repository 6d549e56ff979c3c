//! router

pub mod attribute;
pub mod cake;
pub mod counters;
pub mod cpu;
pub mod device;
pub mod download;
pub mod journal;
pub mod message;
pub mod netlink;
pub mod qdisc;
pub mod redirect;
pub mod root;
pub mod shaper;
