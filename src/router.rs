//! The real line: a Linux router. CAKE over netlink, ICMP probes, an HTTP load, the kernel's counters.
//!
//! One thread, one small runtime. What the shaper changes is in the journal before it happens, and goes back when the
//! line is dropped, also while a panic unwinds.

pub mod attribute;
pub mod cake;
pub mod counters;
pub mod cpu;
pub mod device;
pub mod download;
pub mod forwarder;
pub mod http;
pub mod journal;
pub mod load;
pub mod message;
pub mod netlink;
pub mod prober;
pub mod qdisc;
pub mod redirect;
pub mod root;
pub mod shaper;
pub mod snapshot;
pub mod socket;
pub mod target;
mod task;
pub mod tcp_info;
pub mod tls;

use crate::line::{self, Caveat, Facts, Line, LineError, LinkType, Origin, Sample, Seen, Shaping, Trial, Watch};
use crate::units::{Direction, Rate};
use counters::Counters;
use cpu::Cpu;
use download::Download;
use forwarder::Forwarder;
use journal::Journal;
use load::Load;
use prober::{Outcome, Probe, Prober, Reflector};
use shaper::Shaper;
use socket::Via;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use target::{Choice, Server};
use tls::Trust;
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;

/// How often the counters are read.
const COUNT_EVERY: Duration = Duration::from_millis(100);
/// The processor's load is a mean over this many readings.
const CPU_EVERY: u32 = 5;
/// A trial begins this long after the one before: its packets are gone, and the modem's queue has run empty.
const QUIET: Duration = Duration::from_secs(1);
/// Public resolvers of four operators: one anycast operator is one reflector (rivals, lesson 4).
pub const REFLECTORS: [&str; 4] = ["1.1.1.1", "8.8.8.8", "9.9.9.9", "208.67.222.222"];
/// An Ethernet port may carry more, the internet does not.
const LARGEST_MTU: u32 = 1500;

/// Which router line, and what the user said about it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `None`: the device of the default route.
    pub device: Option<String>,
    /// Names or addresses; empty: [`REFLECTORS`].
    pub reflectors: Vec<String>,
    pub server: Choice,
    pub trust: Trust,
    pub link: LinkType,
    pub sync_up: Option<Rate>,
    pub sync_down: Option<Rate>,
    /// Doubts about what is known of the line.
    pub caveats: Vec<Caveat>,
    /// Where the record of what was there before is kept.
    pub journal: PathBuf,
}

pub struct RouterLine {
    settings: Settings,
    opened: Option<Opened>,
}

/// What the first look at the router has found.
struct Opened {
    runtime: Runtime,
    shaper: Shaper,
    /// Not looked at before a trial asks for it: what others do with what comes in is no reason to refuse an upload.
    download: Option<Download>,
    journal: Arc<Journal>,
    /// Not made before a trial asks for it. `Err`: why it cannot be.
    forwarder: Option<Result<Forwarder, LineError>>,
    via: Via,
    reflectors: Vec<Reflector>,
    server: Server,
    facts: Facts,
}

impl RouterLine {
    pub fn new(settings: Settings) -> Self {
        Self { settings, opened: None }
    }

    fn opened(&mut self) -> Result<&mut Opened, LineError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => Opened::open(&self.settings)?,
        };
        Ok(self.opened.insert(opened))
    }
}

/// The largest IPv4 packet of at most `most` bytes that gets through a device to a reflector and back, ours where none is
/// named. `None`: none of them answers.
///
/// # Errors
/// As [`prober::largest`].
pub fn largest_packet(reflectors: &[String], device: &str, most: u32) -> Result<Option<u32>, LineError> {
    let via = Via { device: Some(device.to_owned()), ..Via::default() };
    runtime()?.block_on(async { prober::largest(&resolved(reflectors).await?, &via, most).await })
}

fn runtime() -> Result<Runtime, LineError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| LineError::failed("start the runtime", error))
}

/// [`REFLECTORS`] where none is named. Nobody twice: a sick one would have two voices.
async fn resolved(named: &[String]) -> Result<Vec<Reflector>, LineError> {
    let ours = REFLECTORS.map(String::from);
    let mut reflectors: Vec<Reflector> = Vec::new();
    for name in if named.is_empty() { &ours } else { named } {
        let reflector = Reflector::resolve(name).await?;
        if reflectors.iter().all(|known| known.address != reflector.address) {
            reflectors.push(reflector);
        }
    }
    Ok(reflectors)
}

impl Line for RouterLine {
    fn facts(&mut self) -> Result<Facts, LineError> {
        Ok(self.opened()?.facts.clone())
    }

    fn run(&mut self, trial: &Trial, watch: &mut dyn FnMut(&Sample) -> Watch) -> Result<(), LineError> {
        let opened = self.opened()?;
        opened.shape(trial)?;
        let ways = opened.ways(trial)?;
        let Opened { runtime, shaper, download, forwarder, via, reflectors, server, .. } = opened;
        std::thread::sleep(QUIET);
        let asked: Vec<Reflector> = trial.reflectors.iter().map(|r| reflectors[*r].clone()).collect();
        let course = Course::begin(shaper, download.as_ref())?;
        runtime.block_on(course.run(trial, &asked, server, via, &ways, watch))?;
        // A trial on something that was changed meanwhile proves nothing.
        shaper.undisturbed()?;
        if let Some(Ok(host)) = forwarder
            && let Err(disturbed) = host.undisturbed()
        {
            *forwarder = None;
            return Err(disturbed);
        }
        download.as_mut().map_or(Ok(()), Download::undisturbed)
    }

    fn put_back(&mut self) -> Result<(), LineError> {
        let Some(opened) = &mut self.opened else { return Ok(()) };
        // One that fails does not keep the other from trying.
        let download = opened.download.as_mut().map_or(Ok(()), Download::put_back);
        let host = match opened.forwarder.take() {
            Some(Ok(mut host)) => host.put_back(),
            _ => Ok(()),
        };
        opened.shaper.put_back().and(download).and(host)
    }
}

impl Opened {
    fn open(settings: &Settings) -> Result<Self, LineError> {
        let device = match &settings.device {
            Some(device) => device.clone(),
            None => default_device()?,
        };
        let journal = Journal::open(&settings.journal)?;
        let shaper = Shaper::open(&device, Direction::Upload, &journal)?;
        let runtime = runtime()?;
        let via = Via { device: Some(device.clone()), ..Via::default() };
        let (server, mut reflectors) = runtime.block_on(async {
            let server = Server::resolve(&settings.server, &via, &settings.trust).await?;
            Ok::<_, LineError>((server, resolved(&settings.reflectors).await?))
        })?;
        let named = reflectors.len();
        // Those whom the user names suffice alone: if none of them answers, that is for the user to know.
        let asked = settings.reflectors.is_empty().then_some([Direction::Upload, Direction::Download]);
        let witness = asked.into_iter().flatten().find_map(|direction| server.endpoint(direction).ok());
        reflectors.extend(witness.map(|endpoint| Reflector::by_handshake(endpoint.address)));
        let facts = Facts {
            name: device,
            link: settings.link,
            sync_up: settings.sync_up,
            sync_down: settings.sync_down,
            mtu: shaper.device().mtu.min(LARGEST_MTU),
            witness: witness.map(|_| named),
            reflectors: reflectors.iter().map(|reflector| reflector.name.clone()).collect(),
            server: server.said().to_owned(),
            caveats: settings.caveats.clone(),
        };
        Ok(Self { runtime, shaper, download: None, journal, forwarder: None, via, reflectors, server, facts })
    }

    fn shape(&mut self, trial: &Trial) -> Result<(), LineError> {
        self.shaper.shape(trial.upload)?;
        if self.download.is_none() && trial.download != Shaping::AsIs {
            self.download = Some(Download::open(&self.facts.name, &self.journal)?);
        }
        self.download.as_mut().map_or(Ok(()), |download| download.shape(trial.download))
    }

    /// One for each load. Where forwarding is not possible the load runs locally, with a word about it.
    fn ways(&mut self, trial: &Trial) -> Result<Vec<Way>, LineError> {
        trial.loads.iter().map(|load| self.way(load)).collect()
    }

    fn way(&mut self, load: &line::Load) -> Result<Way, LineError> {
        if load.origin == Origin::Local {
            return Ok((self.via.clone(), None));
        }
        let to = self.server.endpoint(load.direction)?.address;
        let Self { runtime, shaper, journal, .. } = self;
        let host = self.forwarder.take().unwrap_or_else(|| Forwarder::open(shaper.device(), journal));
        let host = host.and_then(|mut host| runtime.block_on(host.reach(to)).map(|()| host));
        Ok(match self.forwarder.insert(host) {
            Ok(host) => (host.via(), None),
            Err(why) => (self.via.clone(), Some(why.to_string())),
        })
    }
}

/// The way out of a load, and why it is not the one that was asked for.
type Way = (Via, Option<String>);

fn default_device() -> Result<String, LineError> {
    let mut socket = netlink::Socket::open()?;
    let index = device::of_default_route(&mut socket)?;
    let device = index.map(|index| device::by_index(&mut socket, index)).transpose()?.flatten();
    device.map(|device| device.name).ok_or_else(|| {
        LineError::refused(
            "there is no default route, so no line to tune",
            "Connect it, or name its device with --device",
        )
    })
}

/// One trial under way.
struct Course {
    counters: Counters,
    cpu: Cpu,
    began: Instant,
}

impl Course {
    fn begin(shaper: &Shaper, download: Option<&Download>) -> Result<Self, LineError> {
        let device = shaper.device();
        let mut queues = vec![(Direction::Upload, device)];
        queues.extend(download.and_then(Download::through).map(|ifb| (Direction::Download, ifb)));
        let counters = Counters::open(device, &queues)?;
        Ok(Self { counters, cpu: Cpu::start()?, began: Instant::now() })
    }

    async fn run(
        mut self,
        trial: &Trial,
        reflectors: &[Reflector],
        server: &Server,
        via: &Via,
        ways: &[Way],
        watch: &mut dyn FnMut(&Sample) -> Watch,
    ) -> Result<(), LineError> {
        let mut prober = Prober::start(reflectors, via, trial.probe_interval)?;
        let start = |(load, (via, _)): (&line::Load, &Way)| Load::start(load, server, via);
        let mut loads: Vec<Load> = trial.loads.iter().zip(ways).map(start).collect::<Result<_, _>>()?;
        self.began = Instant::now();
        for why in ways.iter().filter_map(|(_, why)| why.clone()) {
            if watch(&Sample { at: Duration::ZERO, seen: Seen::NotForwarded { why } }) == Watch::Enough {
                return Ok(());
            }
        }
        let mut ticks = tokio::time::interval(COUNT_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut count = 0;
        while self.began.elapsed() < trial.duration {
            let seen: Vec<(Instant, Seen)> = tokio::select! {
                biased;
                probe = prober.next() => match probe {
                    Some(probe) => vec![seen(trial, &probe)],
                    None => return Err(LineError::failed("probe the line", "no reflector was named for it")),
                },
                _ = ticks.tick() => {
                    count += 1;
                    self.read(&mut loads, count % CPU_EVERY == 0)?
                }
            };
            for (at, seen) in seen {
                let sample = Sample { at: at.saturating_duration_since(self.began), seen };
                if watch(&sample) == Watch::Enough {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read(&mut self, loads: &mut [Load], cpu: bool) -> Result<Vec<(Instant, Seen)>, LineError> {
        let mut seen = Vec::new();
        for load in loads {
            seen.push((Instant::now(), Seen::Flows(load.flows())));
            while let Some(trouble) = load.trouble() {
                seen.push((Instant::now(), Seen::Trouble(trouble)));
            }
        }
        seen.extend(self.counters.read()?);
        if cpu && let Some(busy) = self.cpu.read()? {
            seen.push((Instant::now(), busy));
        }
        Ok(seen)
    }
}

/// A probe as the trial numbers its reflectors.
fn seen(trial: &Trial, probe: &Probe) -> (Instant, Seen) {
    let reflector = trial.reflectors[probe.reflector];
    let seen = match probe.outcome {
        Outcome::Reply { rtt } => Seen::Reply { reflector, rtt_ms: crate::units::millis(rtt) },
        Outcome::Lost => Seen::Lost { reflector },
    };
    (probe.at, seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reflector_that_is_named_twice_is_asked_once() {
        let named = ["127.0.0.1", "127.0.0.2", "127.0.0.1"].map(String::from);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let asked = runtime.block_on(resolved(&named)).unwrap();
        assert_eq!(asked.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), ["127.0.0.1", "127.0.0.2"]);
    }
}
