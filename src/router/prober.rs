//! Asks several reflectors at once how long the way there and back is: ICMP echo, over sockets of our own.
//!
//! Two things make a round-trip time honest while the processor is busy with the load. The time of a reply is the
//! kernel's stamp on the packet, not the moment we got round to reading it. The time of a request is read right
//! before the kernel is called; the kernel's own transmit stamp would be too late, since software stamps are taken
//! behind the queueing discipline, and the wait in CAKE's queue is part of what is measured.
//!
//! Why not surge-ping: 0.9.1 needs AtomicU64, which 32-bit MIPS does not have; 0.9.0 builds, but dropping one clone of
//! its client breaks the others, cancelled pings leak, each pinger has one ping in flight, and it reads user-space
//! clocks, the sending one after the packet has left. (Sixteen bytes of control message are all there is to it.)

mod echo;
mod handshake;
mod largest;
mod ledger;
mod socket;

pub use largest::largest;

use crate::line::{LineError, PROBE_TIMEOUT};
use crate::router::socket::{Via, look_up};
use crate::router::task::{Tasks, unwind_panicked};
use echo::{Cookie, ECHO_BYTES, Family};
use handshake::handshake;
use ledger::Ledger;
use socket::EchoSocket;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::time::sleep_until;

/// Somebody who answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reflector {
    /// As the user wrote it.
    pub name: String,
    pub address: IpAddr,
    /// Asked by a TCP handshake with this port; `None`: by a ping.
    pub port: Option<u16>,
}

impl Reflector {
    /// Resolves a name, or takes an address as it is.
    ///
    /// # Errors
    /// [`LineError::Refused`] for a name without an address.
    pub async fn resolve(name: &str) -> Result<Self, LineError> {
        let found = look_up(name, 0).await?;
        Ok(Self { name: name.to_owned(), address: found[0].ip(), port: None })
    }

    /// A server that accepts connections.
    pub fn by_handshake(server: SocketAddr) -> Self {
        Self { name: format!("tcp:{server}"), address: server.ip(), port: Some(server.port()) }
    }

    fn family(&self) -> Family {
        Family::of(self.address)
    }
}

/// What became of one probe. Each probe gives exactly one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Index into the reflectors that the prober was started with.
    pub reflector: usize,
    /// When the reply arrived, or the probe was given up.
    pub at: Instant,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Reply {
        rtt: Duration,
    },
    /// Nothing within [`PROBE_TIMEOUT`], or it could not even be sent.
    Lost,
}

/// Sends probes until it is dropped.
#[derive(Debug)]
pub struct Prober {
    tasks: Tasks,
    probes: mpsc::UnboundedReceiver<Probe>,
}

impl Prober {
    /// Asks each reflector once every `interval`, in turn, and not in step with anything else. Needs a tokio runtime
    /// around it.
    ///
    /// # Errors
    /// [`LineError::Refused`] where pings are not allowed.
    pub fn start(reflectors: &[Reflector], via: &Via, interval: Duration) -> Result<Self, LineError> {
        let (sender, probes) = mpsc::unbounded_channel();
        let random = RandomState::new().build_hasher().finish();
        let cookie = random.to_be_bytes();
        let id = random as u16;
        let open = |family| {
            let wanted = reflectors.iter().any(|reflector| reflector.port.is_none() && reflector.family() == family);
            wanted.then(|| EchoSocket::open(family, via, id)).transpose()
        };
        let course = Course {
            reflectors: reflectors.to_vec(),
            via: via.clone(),
            handshakes: Tasks::new(),
            sockets: [open(Family::V4)?, open(Family::V6)?],
            cookie,
            ledger: Ledger::new(PROBE_TIMEOUT),
            sender,
        };
        let mut tasks = Tasks::new();
        tasks.spawn(course.run(interval));
        Ok(Self { tasks, probes })
    }

    /// The next probe that ended; `None` where there are no reflectors.
    ///
    /// # Panics
    /// If the prober itself did.
    pub async fn next(&mut self) -> Option<Probe> {
        let next = self.probes.recv().await;
        if next.is_none() {
            unwind_panicked(&mut self.tasks);
        }
        next
    }

    /// As [`Prober::next`], for those who poll: what has ended by now, one at a time.
    pub fn try_next(&mut self) -> Option<Probe> {
        self.probes.try_recv().ok()
    }
}

/// When to ask: once in each step, and each time at another moment of it.
///
/// A busy shaper sends packet after packet with the same pause. Probes with one pause too can keep meeting the same moment
/// of it (RFC 2330, section 11.1.1), and on a slow line show no delay, or that of a whole packet, all the time. The fractions
/// of the multiples of the golden ratio leave no moment out.
struct Turns {
    step: Duration,
    begins: Instant,
    number: u32,
}

impl Turns {
    fn new(step: Duration, now: Instant) -> Self {
        Self { step, begins: now, number: 0 }
    }

    fn due(&self) -> Instant {
        /// The golden ratio's fraction, of 2^32.
        const GOLDEN: u32 = 0x9e37_79b9;
        let fraction = f64::from(self.number.wrapping_mul(GOLDEN)) / (f64::from(u32::MAX) + 1.0);
        self.begins + self.step.mul_f64(fraction)
    }

    /// Steps that nobody had time for are left out.
    fn done(&mut self, now: Instant) {
        self.number = self.number.wrapping_add(1);
        self.begins = (self.begins + self.step).max(now);
    }
}

struct Course {
    reflectors: Vec<Reflector>,
    via: Via,
    handshakes: Tasks,
    /// IPv4 and IPv6, where a reflector needs them.
    sockets: [Option<EchoSocket>; 2],
    cookie: Cookie,
    ledger: Ledger,
    sender: mpsc::UnboundedSender<Probe>,
}

impl Course {
    async fn run(mut self, interval: Duration) {
        if self.reflectors.is_empty() {
            return;
        }
        // One timer for all: reflector after reflector, whatever happens.
        let mut turns =
            Turns::new((interval / self.reflectors.len() as u32).max(Duration::from_millis(1)), Instant::now());
        let mut turn = 0;
        loop {
            let expiry = self.ledger.next_expiry();
            tokio::select! {
                // Replies first: an expiry must not overtake a reply that is waiting to be read.
                biased;
                reply = receive(self.sockets[0].as_ref(), self.cookie) => self.take(reply),
                reply = receive(self.sockets[1].as_ref(), self.cookie) => self.take(reply),
                () = sleep_until(turns.due().into()) => {
                    self.ask(turn);
                    turn = (turn + 1) % self.reflectors.len();
                    turns.done(Instant::now());
                }
                () = until(expiry) => {}
            }
            while let Some(probe) = self.ledger.expired(Instant::now()) {
                self.tell(probe);
            }
            if self.sender.is_closed() {
                return;
            }
        }
    }

    fn ask(&mut self, reflector: usize) {
        let to = &self.reflectors[reflector];
        if let Some(port) = to.port {
            let (to, via, sender) = (SocketAddr::new(to.address, port), self.via.clone(), self.sender.clone());
            self.handshakes.spawn(async move {
                let rtt = handshake(to, &via).await;
                let outcome = rtt.map_or(Outcome::Lost, |rtt| Outcome::Reply { rtt });
                let _ = sender.send(Probe { reflector, at: Instant::now(), outcome });
            });
            return unwind_panicked(&mut self.handshakes);
        }
        let Some(socket) = &self.sockets[usize::from(to.family() == Family::V6)] else { return };
        let number = self.ledger.number();
        match socket.send(to.address, number, self.cookie, ECHO_BYTES) {
            Ok(sent) => self.ledger.sent(number, reflector, sent),
            Err(error) => {
                log::debug!("cannot send a ping to {}: {error}", to.address);
                self.tell(Probe { reflector, at: Instant::now(), outcome: Outcome::Lost });
            }
        }
    }

    fn take(&mut self, reply: std::io::Result<(u32, Instant)>) {
        match reply {
            Ok((number, at)) => {
                if let Some(probe) = self.ledger.replied(number, at) {
                    self.tell(probe);
                }
            }
            // The error of an earlier packet (no route, no neighbour): that probe will be given up in its time.
            Err(error) => log::debug!("a ping came back with an error: {error}"),
        }
    }

    fn tell(&self, probe: Probe) {
        // Nobody listens any more: `run` notices and ends.
        let _ = self.sender.send(probe);
    }
}

async fn receive(socket: Option<&EchoSocket>, cookie: Cookie) -> std::io::Result<(u32, Instant)> {
    match socket {
        Some(socket) => socket.receive(cookie).await,
        None => std::future::pending().await,
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(50);

    #[test]
    fn probes_meet_each_moment_of_a_period_equally_often() {
        // A full packet each 12.5 ms: four in a step, and a probe with one pause would meet the same moment each time.
        let start = Instant::now();
        let mut turns = Turns::new(STEP, start);
        let mut met = [0; 10];
        for step in 0..200 {
            let due = turns.due();
            assert!((start + STEP * step..start + STEP * (step + 1)).contains(&due), "one in each step");
            met[((due - start).as_micros() % 12_500 / 1_250) as usize] += 1;
            turns.done(due);
        }
        assert!(met.iter().all(|times| (16..=24).contains(times)), "{met:?}");
    }

    #[test]
    fn what_was_missed_is_not_made_up_for() {
        let start = Instant::now();
        let mut turns = Turns::new(STEP, start);
        let late = start + STEP * 10;
        turns.done(late);
        assert!((late..late + STEP).contains(&turns.due()));
    }
}
