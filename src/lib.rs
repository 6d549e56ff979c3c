//! sqm-autotune (architecture page to come).

pub mod calibration;
pub mod cli;
pub mod line;
#[cfg(feature = "router")]
pub mod router;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod units;
