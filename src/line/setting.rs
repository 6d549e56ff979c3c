//! What a shaper is told: CAKE's rate and its accounting of what a packet costs on the wire.

use crate::units::Rate;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A CAKE setting for one direction. Everything that is not named here is as sqm-scripts' `piece_of_cake` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cake {
    pub rate: Rate,
    pub accounting: Accounting,
    /// tc's `rtt`: CAKE's interval; its target is a twentieth of it (iproute2 `q_cake.c`).
    pub rtt: Duration,
    /// Lets a newer TCP acknowledgement take the place of the one that waits (tc's `ack-filter`).
    #[serde(default)]
    pub ack_filter: bool,
}

impl Cake {
    /// CAKE's default, `rtt 100ms`: a target of 5 ms.
    pub const DEFAULT_RTT: Duration = Duration::from_millis(100);
    /// `rtt 160ms`: a target of 8 ms.
    pub const LONG_RTT: Duration = Duration::from_millis(160);

    /// With CAKE's defaults.
    pub const fn new(rate: Rate, accounting: Accounting) -> Self {
        Self { rate, accounting, rtt: Self::DEFAULT_RTT, ack_filter: false }
    }

    pub fn target(&self) -> Duration {
        self.rtt / 20
    }
}

/// What one IP packet costs at the bottleneck, as CAKE counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounting {
    /// Bytes added to each IP packet.
    pub overhead: i32,
    /// No packet costs less than this, overhead included.
    pub mpu: u32,
    pub cells: Cells,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cells {
    None,
    Atm,
    Ptm,
}

impl Accounting {
    /// The bytes that CAKE books for an IP packet (`cake_calc_overhead` in sch_cake.c).
    pub fn wire_bytes(&self, ip_bytes: u32) -> u32 {
        let framed = ip_bytes.saturating_add_signed(self.overhead).max(self.mpu);
        match self.cells {
            Cells::None => framed,
            Cells::Atm => framed.div_ceil(48) * 53,
            Cells::Ptm => framed + framed.div_ceil(64),
        }
    }
}

/// What a router can know of its link without measuring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkType {
    #[serde(rename = "pppoe-vdsl2")]
    PppoeVdsl2,
    PppoeAtm,
    Pppoa,
    Docsis,
    Ethernet,
    Pppoe,
    Lte,
    Unknown,
}

impl LinkType {
    /// The accounting to use where nothing was measured: generous for frames, since too much costs half a
    /// percent and too little brings latency back (facts: 44/84 community default, 22/64 DOCSIS, 44 for ATM).
    pub fn prior(self) -> Accounting {
        match self {
            Self::PppoeAtm | Self::Pppoa => Accounting { overhead: 44, mpu: 0, cells: Cells::Atm },
            Self::Docsis => Accounting { overhead: 22, mpu: 64, cells: Cells::None },
            Self::PppoeVdsl2 | Self::Ethernet | Self::Pppoe | Self::Lte | Self::Unknown => {
                Accounting { overhead: 44, mpu: 84, cells: Cells::None }
            }
        }
    }

    /// What the modem's framing takes of its sync rate: VDSL2's PTM sends 65 bytes for 64 (ITU-T G.993.2 annex N).
    pub fn framing_share(self) -> f64 {
        match self {
            Self::PppoeVdsl2 => 64.0 / 65.0,
            _ => 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_bytes_agree_with_what_people_captured() {
        let atm48 = Accounting { overhead: 48, mpu: 0, cells: Cells::Atm };
        assert_eq!((atm48.wire_bytes(40), atm48.wire_bytes(1500)), (106, 1749));
        let atm10 = Accounting { overhead: 10, mpu: 0, cells: Cells::Atm };
        assert_eq!(atm10.wire_bytes(1478), 1643);
        let frames26 = Accounting { overhead: 26, mpu: 64, cells: Cells::None };
        assert_eq!(frames26.wire_bytes(28), 64);
        let ptm30 = Accounting { overhead: 30, mpu: 0, cells: Cells::Ptm };
        assert_eq!(ptm30.wire_bytes(1500), 1530 + 24);
    }
}
