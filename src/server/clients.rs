//! Who has had how much. Pure: the time is an argument.

use super::Limits;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Accounts that are remembered at once; more clients than that in one window are refused.
const MOST_CLIENTS: usize = 4096;

/// A client that comes back sooner than this is only refused again.
const SHORT_WAIT: Duration = Duration::from_secs(5);

/// Why a client gets nothing now, and when it may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub why: Why,
    pub wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// All clients together.
    Full,
    Connections,
    Bytes,
    Time,
}

#[derive(Debug)]
pub struct Clients {
    limits: Limits,
    connections: usize,
    accounts: HashMap<IpAddr, Account>,
}

#[derive(Debug)]
struct Account {
    window: Instant,
    connections: usize,
    bytes: u64,
    busy: Duration,
    /// Since when `busy` is behind, while there are connections.
    since: Instant,
}

impl Clients {
    pub fn new(limits: Limits) -> Self {
        Self { limits, connections: 0, accounts: HashMap::new() }
    }

    /// A client connects; after `Ok` it has to [`Clients::leave`].
    pub fn arrive(&mut self, peer: IpAddr, now: Instant) -> Result<(), Refusal> {
        if self.connections >= self.limits.connections {
            return Err(Refusal { why: Why::Full, wait: SHORT_WAIT });
        }
        let client = client(peer);
        if !self.accounts.contains_key(&client) && self.accounts.len() >= MOST_CLIENTS {
            let window = self.limits.window;
            self.accounts.retain(|_, account| account.connections > 0 || now < account.window + window);
            if self.accounts.len() >= MOST_CLIENTS {
                return Err(Refusal { why: Why::Full, wait: SHORT_WAIT });
            }
        }
        let fresh = || Account { window: now, connections: 0, bytes: 0, busy: Duration::ZERO, since: now };
        let account = self.accounts.entry(client).or_insert_with(fresh);
        account.catch_up(&self.limits, now);
        account.check(&self.limits, now)?;
        if account.connections >= self.limits.connections_per_client {
            return Err(Refusal { why: Why::Connections, wait: SHORT_WAIT });
        }
        account.connections += 1;
        self.connections += 1;
        Ok(())
    }

    pub fn leave(&mut self, peer: IpAddr, now: Instant) {
        self.connections -= 1;
        if let Some(account) = self.accounts.get_mut(&client(peer)) {
            account.catch_up(&self.limits, now);
            account.connections -= 1;
        }
    }

    /// Whether a connected client may ask for more.
    pub fn check(&mut self, peer: IpAddr, now: Instant) -> Result<(), Refusal> {
        self.moved(peer, 0, now)
    }

    /// A connected client has sent or received so much more.
    pub fn moved(&mut self, peer: IpAddr, bytes: u64, now: Instant) -> Result<(), Refusal> {
        let Some(account) = self.accounts.get_mut(&client(peer)) else { return Ok(()) };
        account.catch_up(&self.limits, now);
        account.bytes = account.bytes.saturating_add(bytes);
        account.check(&self.limits, now)
    }
}

impl Account {
    /// Brings the time up to now, and begins a new window where the old one is over.
    fn catch_up(&mut self, limits: &Limits, now: Instant) {
        if self.connections > 0 {
            self.busy += now.saturating_duration_since(self.since);
        }
        self.since = now;
        if now.saturating_duration_since(self.window) >= limits.window {
            self.window = now;
            self.bytes = 0;
            self.busy = Duration::ZERO;
        }
    }

    fn check(&self, limits: &Limits, now: Instant) -> Result<(), Refusal> {
        let wait = (self.window + limits.window).saturating_duration_since(now);
        if self.bytes >= limits.bytes_per_client {
            Err(Refusal { why: Why::Bytes, wait })
        } else if self.busy >= limits.time_per_client {
            Err(Refusal { why: Why::Time, wait })
        } else {
            Ok(())
        }
    }
}

/// One household: an IPv4 address, or the /64 that every IPv6 host has all of to itself.
fn client(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let mut octets = address.octets();
            octets[8..].fill(0);
            IpAddr::from(octets)
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            connections: 3,
            connections_per_client: 2,
            bytes_per_client: 1000,
            time_per_client: Duration::from_secs(60),
            window: Duration::from_secs(600),
            ..Limits::default()
        }
    }

    fn why(result: Result<(), Refusal>) -> Option<Why> {
        result.err().map(|refusal| refusal.why)
    }

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    #[test]
    fn connections_are_limited_for_each_and_for_all() {
        let now = Instant::now();
        let mut clients = Clients::new(limits());
        assert_eq!(clients.arrive(A, now), Ok(()));
        assert_eq!(clients.arrive(A, now), Ok(()));
        assert_eq!(why(clients.arrive(A, now)), Some(Why::Connections));
        assert_eq!(clients.arrive(B, now), Ok(()));
        assert_eq!(why(clients.arrive(B, now)), Some(Why::Full));
        clients.leave(A, now);
        assert_eq!(clients.arrive(B, now), Ok(()));
    }

    #[test]
    fn bytes_and_time_come_back_with_the_next_window() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut clients = Clients::new(limits());
        clients.arrive(A, at(0)).unwrap();
        assert_eq!(clients.moved(A, 999, at(10)), Ok(()));
        assert_eq!(clients.moved(A, 1, at(20)), Err(Refusal { why: Why::Bytes, wait: Duration::from_secs(580) }));
        clients.leave(A, at(20));
        assert_eq!(why(clients.arrive(A, at(599))), Some(Why::Bytes));
        assert_eq!(clients.arrive(A, at(600)), Ok(()));
        assert_eq!(clients.check(A, at(659)), Ok(()));
        assert_eq!(clients.check(A, at(660)), Err(Refusal { why: Why::Time, wait: Duration::from_secs(540) }));
    }

    #[test]
    fn an_ipv6_client_is_its_whole_prefix_and_a_mapped_one_its_ipv4_address() {
        let peer = |text: &str| client(text.parse().unwrap());
        assert_eq!(peer("2001:db8:1:2:3::4"), peer("2001:db8:1:2:ffff::1"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), A);
    }

    #[test]
    fn strangers_are_refused_when_the_books_are_full_and_forgotten_when_their_window_is_over() {
        let start = Instant::now();
        let mut clients = Clients::new(limits());
        for n in 0..MOST_CLIENTS as u32 {
            let peer = IpAddr::V4(n.into());
            clients.arrive(peer, start).unwrap();
            clients.leave(peer, start);
        }
        assert_eq!(why(clients.arrive(A, start)), Some(Why::Full));
        assert_eq!(clients.arrive(A, start + Duration::from_secs(600)), Ok(()));
    }
}
