//! router

pub mod attribute;
pub mod cake;
pub mod counters;
pub mod cpu;
pub mod device;
pub mod http;
pub mod journal;
pub mod load;
pub mod netlink;
pub mod prober;
pub mod qdisc;
pub mod root;
pub mod shaper;
pub mod socket;
pub mod target;
pub mod tcp_info;
pub mod tls;
