//! router

pub mod http;
pub mod load;
pub mod prober;
pub mod socket;
pub mod target;
pub mod tcp_info;
pub mod tls;
