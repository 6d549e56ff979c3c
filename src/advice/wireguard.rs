//! Which MTU a WireGuard tunnel should have.
//!
//! A packet that is too large with the tunnel's headers is cut in two on its way out: twice the packets, each counted by
//! the shaper, or lost where a network drops fragments.

use serde::Serialize;

/// Around each packet: the outer IP header, UDP's 8, WireGuard's 16 and its check of 16.
const AROUND_IPV4: u32 = 20 + 8 + 16 + 16;
const AROUND_IPV6: u32 = 40 + 8 + 16 + 16;
/// IP and TCP headers without options.
const TCP_IPV4: u32 = 20 + 20;
const TCP_IPV6: u32 = 40 + 20;
/// Less than this lost is not worth a change (contract).
const GIVEN_AWAY: u32 = 40;
/// IPv6 works over nothing smaller (RFC 8200).
const LEAST_IPV6: u32 = 1280;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Ipv4,
    Ipv6,
    /// A host name, or a peer that calls in.
    Unknown,
}

/// The largest packet that gets through to the other end, by the family it travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    pub ipv4: u32,
    pub ipv6: u32,
    /// A mobile network may carry less than its device says.
    pub uncertain: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunnel {
    pub name: String,
    pub mtu: u32,
    pub family: Family,
    /// Whether the firewall clamps the MSS; `None`: unknown.
    pub clamped: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Lower,
    Raise,
    Keep,
}

/// One of `mtu --json`'s tunnels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advice {
    pub name: String,
    pub mtu: u32,
    pub endpoint_family: Family,
    pub ipv4_mtu: u32,
    pub ipv6_mtu: u32,
    pub advice_mtu: u32,
    pub mss_ipv4: u32,
    pub mss_ipv6: u32,
    pub action: Action,
    pub why: String,
}

impl Advice {
    pub fn of(tunnel: &Tunnel, path: Path) -> Self {
        let ipv4_mtu = path.ipv4.saturating_sub(AROUND_IPV4);
        let ipv6_mtu = path.ipv6.saturating_sub(AROUND_IPV6);
        let fits = match tunnel.family {
            Family::Ipv4 => ipv4_mtu,
            Family::Ipv6 => ipv6_mtu,
            Family::Unknown => ipv6_mtu.min(ipv4_mtu),
        };
        let may_raise = tunnel.family != Family::Unknown && !path.uncertain;
        let action = if tunnel.mtu > fits {
            Action::Lower
        } else if may_raise && fits - tunnel.mtu > GIVEN_AWAY {
            Action::Raise
        } else {
            Action::Keep
        };
        let advice_mtu = if action == Action::Keep { tunnel.mtu } else { fits };
        let mut advice = Self {
            name: tunnel.name.clone(),
            mtu: tunnel.mtu,
            endpoint_family: tunnel.family,
            ipv4_mtu,
            ipv6_mtu,
            advice_mtu,
            mss_ipv4: advice_mtu.saturating_sub(TCP_IPV4),
            mss_ipv6: advice_mtu.saturating_sub(TCP_IPV6),
            action,
            why: String::new(),
        };
        advice.why = advice.reasons(tunnel, path, fits);
        advice
    }

    fn reasons(&self, tunnel: &Tunnel, path: Path, fits: u32) -> String {
        let over_ipv4 = format!("{} - {AROUND_IPV4} = {}", path.ipv4, self.ipv4_mtu);
        let over_ipv6 = format!("{} - {AROUND_IPV6} = {}", path.ipv6, self.ipv6_mtu);
        let why = match tunnel.family {
            Family::Ipv4 => format!("{over_ipv4}: outer IPv4 20, UDP 8, WireGuard 32"),
            Family::Ipv6 => format!("{over_ipv6}: outer IPv6 40, UDP 8, WireGuard 32"),
            Family::Unknown => format!(
                "{over_ipv4} over IPv4, {over_ipv6} over IPv6 (outer IP 20 or 40, UDP 8, WireGuard 32); which of them the \
                 endpoint uses is not known, and {fits} fits both"
            ),
        };
        let now = tunnel.mtu;
        let verdict = match self.action {
            Action::Lower => format!("With {now}, full packets do not fit and are cut in two or lost"),
            Action::Raise => format!("With {now}, {} bytes of each packet are given away", fits - now),
            Action::Keep if now == fits => format!("{now} is exactly that"),
            Action::Keep => format!("{now} fits"),
        };
        let uncertain = path.uncertain.then(|| {
            format!("A mobile network may carry less than its device says: measure; {LEAST_IPV6} always works")
        });
        let too_small = self.advice_mtu < LEAST_IPV6;
        let too_small = too_small.then(|| format!("Below {LEAST_IPV6} there is no IPv6 inside the tunnel"));
        let clamped = tunnel.clamped.map(|clamped| {
            if clamped {
                "The firewall clamps the MSS to it (mtu_fix)"
            } else {
                "The firewall does not clamp the MSS: set mtu_fix '1' in the tunnel's zone"
            }
        });
        let sentences = [Some(why), Some(verdict), uncertain, too_small, clamped.map(str::to_owned)];
        sentences.into_iter().flatten().collect::<Vec<_>>().join(". ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(mtu: u32, family: Family, ipv4: u32, ipv6: u32) -> Advice {
        let tunnel = Tunnel { name: "wg0".into(), mtu, family, clamped: None };
        Advice::of(&tunnel, Path { ipv4, ipv6, uncertain: false })
    }

    /// facts I: path and family, what fits.
    #[test]
    fn what_fits_is_the_path_less_sixty_or_eighty() {
        for (path, over_ipv4, over_ipv6) in
            [(1500, 1440, 1420), (1492, 1432, 1412), (1460, 1400, 1380), (1452, 1392, 1372)]
        {
            let ipv4 = advice(1500, Family::Ipv4, path, path);
            assert_eq!((ipv4.ipv4_mtu, ipv4.ipv6_mtu, ipv4.advice_mtu), (over_ipv4, over_ipv6, over_ipv4));
            assert_eq!((ipv4.mss_ipv4, ipv4.mss_ipv6), (over_ipv4 - 40, over_ipv4 - 60));
            for family in [Family::Ipv6, Family::Unknown] {
                assert_eq!(advice(1500, family, path, path).advice_mtu, over_ipv6);
            }
        }
    }

    #[test]
    fn a_working_mtu_stays() {
        let action = |mtu, family, path| {
            let advice = advice(mtu, family, path, path);
            (advice.action, advice.advice_mtu)
        };
        // C43.
        assert_eq!(action(1300, Family::Ipv4, 1380), (Action::Keep, 1300));
        assert_eq!(action(1420, Family::Unknown, 1492), (Action::Lower, 1412));
        assert_eq!(action(1420, Family::Ipv4, 1492), (Action::Keep, 1420));
        assert_eq!(action(1412, Family::Ipv4, 1492), (Action::Keep, 1412));
        assert_eq!(action(1433, Family::Ipv4, 1492), (Action::Lower, 1432));
        assert_eq!(action(1392, Family::Ipv4, 1492), (Action::Keep, 1392));
        assert_eq!(action(1391, Family::Ipv4, 1492), (Action::Raise, 1432));
        assert_eq!(action(1280, Family::Unknown, 1500), (Action::Keep, 1280));
        assert_eq!(action(1379, Family::Ipv6, 1500), (Action::Raise, 1420));
    }

    #[test]
    fn a_mobile_path_is_never_a_reason_to_raise() {
        let tunnel = Tunnel { name: "wg0".into(), mtu: 1280, family: Family::Ipv4, clamped: Some(false) };
        let advice = Advice::of(&tunnel, Path { ipv4: 1500, ipv6: 1500, uncertain: true });
        assert_eq!((advice.action, advice.advice_mtu), (Action::Keep, 1280));
        assert!(advice.why.contains("1280 always works") && advice.why.contains("mtu_fix"), "{}", advice.why);
    }

    #[test]
    fn absurd_paths_do_not_overflow() {
        assert_eq!(advice(1420, Family::Ipv6, 68, 68).advice_mtu, 0);
    }
}
