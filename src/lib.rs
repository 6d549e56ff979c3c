//! sqm-autotune finds the right CAKE settings for a home router's line, by measurement.
//!
//! # What flows
//!
//! ```text
//!  Plan ──► Trial ──► Line ──► Sample… ──► Measurement ──► Verdict ──► Outcome ──► UCI text
//!           (value)   (the     (values)    (value)         (value)     (value)     (value)
//!                      world)
//! ```
//!
//! - A [`line::Trial`] plans one observation: the shaping, the load, how long, and why.
//! - A [`line::Line`] runs it and streams [`line::Sample`]s. It is the only seam to the world: the router (netlink,
//!   ICMP, HTTP) and the simulated line (virtual time) implement it, and so do the lines around a line that stop,
//!   slow down, record or break one.
//! - [`calibration`] decides: which trial next (`steps`, `rate`, `search`, `target`), how much of it is enough (`extent`),
//!   what it will cost (`forecast`), what a trial proved (`estimate`, `capacity`),
//!   whether it was clean, bloated or inconclusive (`verdict`, which holds the rule and every threshold of it).
//!   It is pure: no clock, socket, file or process, so that a whole calibration runs in virtual time.
//! - The [`calibration::outcome::Outcome`] carries settings, evidence and reasons; the terminal, its JSON and the tests
//!   read that.
//! - [`openwrt`] is what the router knows without measuring (its configuration, netifd, the modem's driver), and writes what
//!   was found: a change list, a write that can be undone at any point, the schedule of unattended runs.
//! - [`advice`] is arithmetic for people: what a WireGuard tunnel's MTU should be.
//! - [`durable`] is what outlives a killed process: a lock and files that are the old one or the new one.
//! - `server` is the sink, source and reflector that a user can host.
//! - [`cli`] is the only one that knows everybody.
//!
//! # Which way the arrows point
//!
//! ```text
//!  cli ──► calibration ──► line ──► units
//!   ├────► router, sim ──►  ┘         ▲
//!   ├────► server ────────────────────┤
//!   └────► openwrt ───────────────────┘
//! ```
//!
//! `router`, `openwrt` and `cli` stand on `durable`, which sees nobody.
//! `router` and `sim` never see `calibration` or each other; `openwrt` sees only its outcome. `tests/architecture.rs` enforces it.
//!
//! # Words
//!
//! download, upload: as a person at home sees them · sync: what the modem reports · capacity: what the bottleneck
//! drains · rate: what the shaper is set to · throughput: what got through · baseline: the idle line · added delay:
//! loaded minus idle, the same quantile of both · probe, reflector: a ping and who answers it · load, flow · settle:
//! the beginning of a trial, which proves nothing · overhead, cells, MPU: what a packet costs on the wire beyond its
//! IP bytes ([`line::Accounting`]) · target, interval: CAKE's; `rtt` is tc's word that sets both.

pub mod advice;
pub mod calibration;
pub mod cli;
pub mod durable;
pub mod line;
pub mod openwrt;
#[cfg(feature = "router")]
pub mod router;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "sim")]
pub mod sim;
pub mod units;
