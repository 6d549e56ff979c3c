//! The lines that ship, as files.

macro_rules! shipped {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("lines/", $name, ".toml")))),*]
    };
}

/// Name and text of each, in the order in which they are listed.
pub const SHIPPED: &[(&str, &str)] = shipped! {
    "vdsl2-pppoe" "adsl-atm" "docsis" "fibre-pppoe" "fibre-policer" "lte"
    "cable-burst" "slow-uplink" "weak-router" "busy-home" "sick-reflectors" "good-modem"
};
