//! How large a packet gets through: pings that nobody may cut in two.

use super::Reflector;
use super::echo::{Cookie, ECHO_BYTES, Family};
use super::socket::EchoSocket;
use crate::line::LineError;
use crate::router::socket::Via;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::RangeInclusive;
use std::time::Duration;
use tokio::time::timeout;

/// Every IPv4 host takes a packet of this size (RFC 791): what is smaller need not be asked for.
const EVERYBODY_TAKES: u32 = 576;
/// A size is too large only when so many rounds of pings to all of them have stayed without an answer: loss is not size.
const ROUNDS: u32 = 2;
/// The longest that an idle line takes to answer; by satellite it is some 0.6 s.
const WAIT: Duration = Duration::from_secs(1);

/// The largest packet, IP header included, of at most `most` bytes that one of the IPv4 reflectors answers. `None`:
/// nobody answers at all, or not even what everybody takes.
///
/// Takes a moment where `most` gets through, some ten seconds where the path carries less.
///
/// # Errors
/// [`LineError::Refused`] where pings are not allowed.
pub async fn largest(reflectors: &[Reflector], via: &Via, most: u32) -> Result<Option<u32>, LineError> {
    let random = RandomState::new().build_hasher().finish();
    let socket = EchoSocket::open(Family::V4, via, random as u16)?
        .whole()
        .map_err(|error| LineError::failed("send pings that stay whole", error))?;
    let mut asker = Asker { socket, reflectors, cookie: random.to_be_bytes(), number: 0 };
    let mut sizes = EVERYBODY_TAKES..=most.max(EVERYBODY_TAKES);
    if asker.gets_through(*sizes.end()).await {
        return Ok(Some(*sizes.end()));
    }
    if !asker.gets_through(*sizes.start()).await {
        return Ok(None);
    }
    while let Some(middle) = middle(&sizes) {
        let fits = asker.gets_through(middle).await;
        sizes = if fits { middle..=*sizes.end() } else { *sizes.start()..=middle };
    }
    Ok(Some(*sizes.start()))
}

/// Between a size that gets through and one that does not; `None`: there is nothing left to ask.
fn middle(sizes: &RangeInclusive<u32>) -> Option<u32> {
    let (fits, too_large) = (*sizes.start(), *sizes.end());
    (too_large - fits > 1).then(|| fits + (too_large - fits) / 2)
}

struct Asker<'a> {
    socket: EchoSocket,
    reflectors: &'a [Reflector],
    cookie: Cookie,
    number: u32,
}

impl Asker<'_> {
    async fn gets_through(&mut self, packet: u32) -> bool {
        let length = packet as usize - Family::V4.ip_header();
        debug_assert!(length >= ECHO_BYTES);
        for _ in 0..ROUNDS {
            let first = self.number;
            for reflector in self.reflectors.iter().filter(|reflector| reflector.address.is_ipv4()) {
                // An error is the device's own: it takes no packet of that size.
                if self.socket.send(reflector.address, self.number, self.cookie, length).is_ok() {
                    self.number += 1;
                }
            }
            if self.number == first {
                return false;
            }
            if timeout(WAIT, self.answer(first)).await.is_ok() {
                return true;
            }
        }
        false
    }

    /// Until one of the probes from `first` on is answered. Errors are those of earlier packets.
    async fn answer(&self, first: u32) {
        while !matches!(self.socket.receive(self.cookie).await, Ok((number, _)) if number >= first) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_between_two_neighbours() {
        for truth in [576, 577, 1279, 1400, 1499] {
            let mut sizes = 576..=1500;
            let mut asked = 0;
            while let Some(size) = middle(&sizes) {
                sizes = if size <= truth { size..=*sizes.end() } else { *sizes.start()..=size };
                asked += 1;
            }
            assert_eq!((*sizes.start(), asked <= 10), (truth, true));
        }
    }
}
