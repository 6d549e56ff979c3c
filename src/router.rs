//! router

pub mod attribute;
pub mod cake;
pub mod device;
pub mod journal;
pub mod netlink;
pub mod qdisc;
pub mod root;
pub mod shaper;
