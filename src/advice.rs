//! Advice that needs no measurement: pure arithmetic with its reasons. Nothing here is ever written to a router.

pub mod wireguard;
