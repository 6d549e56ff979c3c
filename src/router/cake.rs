//! CAKE's options and statistics as the kernel wants and gives them (net/sched/sch_cake.c, pkt_sched.h).

use super::attribute::{Malformed, Writer, attributes};
use crate::line::{Accounting, Cake, Cells};
use crate::units::{Direction, Rate};
use std::time::Duration;

pub const KIND: &str = "cake";

const PAD: u16 = 1;
const BASE_RATE64: u16 = 2;
const DIFFSERV_MODE: u16 = 3;
const ATM: u16 = 4;
const FLOW_MODE: u16 = 5;
const OVERHEAD: u16 = 6;
const RTT: u16 = 7;
const TARGET: u16 = 8;
const AUTORATE: u16 = 9;
const MEMORY: u16 = 10;
const NAT: u16 = 11;
const RAW: u16 = 12;
const WASH: u16 = 13;
const MPU: u16 = 14;
const INGRESS: u16 = 15;
const ACK_FILTER: u16 = 16;
const SPLIT_GSO: u16 = 17;
const FWMARK: u16 = 18;

const BEST_EFFORT: u32 = 3;
const TRIPLE_ISOLATE: u32 = 7;

/// `cake_mq` (Linux 7.0) is one CAKE over several hardware queues; it speaks the same options.
pub fn is_cake(kind: &str) -> bool {
    kind == KIND || kind == "cake_mq"
}

/// A setting that CAKE could only take as another: rate 0 is "unlimited", and tc's own bounds hold for what
/// `sqm-scripts` will be told later (iproute2 `q_cake.c`).
pub fn check(cake: &Cake) -> Result<(), String> {
    let Accounting { overhead, mpu, .. } = cake.accounting;
    if cake.rate.bits() < 8 {
        return Err("a rate of zero would mean unlimited".into());
    }
    if !(-64..=256).contains(&overhead) {
        return Err(format!("overhead {overhead} is outside of -64 to 256"));
    }
    if mpu > 256 {
        return Err(format!("mpu {mpu} is above 256"));
    }
    if cake.target().as_micros() == 0 || u32::try_from(cake.rtt.as_micros()).is_err() {
        return Err(format!("rtt {:?} is no time that CAKE can keep", cake.rtt));
    }
    Ok(())
}

/// All options of `piece_of_cake`, every one named: a change keeps what is not named. Only `raw` is not there, since
/// it acts by its presence: an overhead takes it back.
///
/// `nat` is on, as sqm-scripts 1.7 has it (1.6 leaves it to the user): without it the hosts behind the router share one
/// host's fair share, so a test with one busy host would show a fairness that the line then lacks. `wash` only on
/// download, where the provider's markings mean nothing here. `ingress` (count what is dropped, too: it has crossed the
/// bottleneck already) only on download.
pub fn encode(cake: &Cake, direction: Direction) -> Vec<u8> {
    let Accounting { overhead, mpu, cells } = cake.accounting;
    let download = u32::from(direction == Direction::Download);
    Writer::default()
        .u64(BASE_RATE64, cake.rate.bits() / 8)
        .u32(DIFFSERV_MODE, BEST_EFFORT)
        .u32(ATM, cells_code(cells))
        .u32(FLOW_MODE, TRIPLE_ISOLATE)
        .i32(OVERHEAD, overhead)
        .u32(MPU, mpu)
        .u32(RTT, micros(cake.rtt))
        // The kernel does not derive it: `tc` does, and so do we.
        .u32(TARGET, micros(cake.target()))
        .u32(AUTORATE, 0)
        .u32(MEMORY, 0)
        .u32(NAT, 1)
        .u32(WASH, download)
        .u32(INGRESS, download)
        .u32(ACK_FILTER, u32::from(cake.ack_filter))
        .u32(SPLIT_GSO, 1)
        .u32(FWMARK, 0)
        .finish()
}

/// What decides about rate and delay, as the kernel shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    pub bytes_per_second: u64,
    pub diffserv: u32,
    pub flow_mode: u32,
    pub overhead: i32,
    pub raw: bool,
    pub mpu: u32,
    pub atm: u32,
    pub rtt_us: u32,
    pub target_us: u32,
    pub autorate: u32,
    pub memory: u32,
    pub nat: u32,
    pub wash: u32,
    pub ingress: u32,
    pub ack_filter: u32,
    pub split_gso: u32,
    pub fwmark: u32,
}

pub fn decode(options: &[u8]) -> Result<Options, Malformed> {
    let mut read = Options::default();
    for attribute in attributes(options) {
        let attribute = attribute?;
        let number = match attribute.kind {
            BASE_RATE64 => {
                read.bytes_per_second = attribute.u64()?;
                continue;
            }
            OVERHEAD => {
                read.overhead = attribute.i32()?;
                continue;
            }
            RAW => {
                read.raw = true;
                continue;
            }
            DIFFSERV_MODE => &mut read.diffserv,
            ATM => &mut read.atm,
            FLOW_MODE => &mut read.flow_mode,
            RTT => &mut read.rtt_us,
            TARGET => &mut read.target_us,
            AUTORATE => &mut read.autorate,
            MEMORY => &mut read.memory,
            NAT => &mut read.nat,
            WASH => &mut read.wash,
            MPU => &mut read.mpu,
            INGRESS => &mut read.ingress,
            ACK_FILTER => &mut read.ack_filter,
            SPLIT_GSO => &mut read.split_gso,
            FWMARK => &mut read.fwmark,
            _ => continue,
        };
        *number = attribute.u32()?;
    }
    Ok(read)
}

impl Options {
    /// Kbit/s; `None` is unlimited.
    pub fn rate(&self) -> Option<Rate> {
        (self.bytes_per_second != 0).then(|| Rate::from_bits(self.bytes_per_second.saturating_mul(8)))
    }

    /// In words, what `self` has otherwise than `wanted`; empty if nothing.
    pub fn differences(&self, wanted: &Self) -> Vec<String> {
        let flag = |is: bool| i64::from(is);
        let pairs = [
            ("rate (bytes/s)", self.bytes_per_second as i64, wanted.bytes_per_second as i64),
            ("overhead", i64::from(self.overhead), i64::from(wanted.overhead)),
            ("raw", flag(self.raw), flag(wanted.raw)),
            ("mpu", i64::from(self.mpu), i64::from(wanted.mpu)),
            ("atm", i64::from(self.atm), i64::from(wanted.atm)),
            ("rtt (us)", i64::from(self.rtt_us), i64::from(wanted.rtt_us)),
            ("target (us)", i64::from(self.target_us), i64::from(wanted.target_us)),
            ("diffserv", i64::from(self.diffserv), i64::from(wanted.diffserv)),
            ("flow mode", i64::from(self.flow_mode), i64::from(wanted.flow_mode)),
            ("autorate", i64::from(self.autorate), i64::from(wanted.autorate)),
            ("memory limit", i64::from(self.memory), i64::from(wanted.memory)),
            ("nat", i64::from(self.nat), i64::from(wanted.nat)),
            ("wash", i64::from(self.wash), i64::from(wanted.wash)),
            ("ingress", i64::from(self.ingress), i64::from(wanted.ingress)),
            ("ack filter", i64::from(self.ack_filter), i64::from(wanted.ack_filter)),
            ("split gso", i64::from(self.split_gso), i64::from(wanted.split_gso)),
            ("fwmark", i64::from(self.fwmark), i64::from(wanted.fwmark)),
        ];
        let differing = pairs.into_iter().filter(|(_, is, wanted)| is != wanted);
        differing.map(|(what, is, wanted)| format!("{what} is {is}, not {wanted}")).collect()
    }
}

/// CAKE's options without their alignment padding. On machines that cannot read a u64 anywhere (MIPS) the kernel puts
/// padding in front of one or not, depending on where in a dump the qdisc stands: nothing to compare or to replay.
pub fn without_padding(options: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut writer = Writer::default();
    for attribute in attributes(options) {
        let attribute = attribute?;
        if attribute.kind != PAD {
            writer = writer.bytes(attribute.kind, attribute.payload);
        }
    }
    Ok(writer.finish())
}

/// What CAKE says of its queue. Of one tin as of eight: counts are summed, delays are those of the first, which is the
/// only one of `besteffort`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub backlog_bytes: u64,
    /// These count up to 2³² and start again.
    pub dropped_packets: u32,
    pub ecn_marked: u32,
    pub average_delay: Duration,
    /// In effect: at low rates 1.5 packets' time, not what was set.
    pub target: Duration,
}

pub fn statistics(bytes: &[u8]) -> Result<Statistics, Malformed> {
    const TIN_STATS: u16 = 10;
    let mut sum = Statistics::default();
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        if attribute.kind != TIN_STATS {
            continue;
        }
        for (number, tin) in attribute.nested().enumerate() {
            let tin = tin_statistics(tin?.payload)?;
            sum.backlog_bytes += tin.backlog_bytes;
            sum.dropped_packets = sum.dropped_packets.wrapping_add(tin.dropped_packets);
            sum.ecn_marked = sum.ecn_marked.wrapping_add(tin.ecn_marked);
            if number == 0 {
                (sum.average_delay, sum.target) = (tin.average_delay, tin.target);
            }
        }
    }
    Ok(sum)
}

/// One of CAKE's classes, in the kernel's order: of three or four the first is Bulk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tin {
    pub sent_packets: u32,
    pub average_delay: Duration,
    /// In effect.
    pub target: Duration,
}

pub fn tins(bytes: &[u8]) -> Result<Vec<Tin>, Malformed> {
    const TIN_STATS: u16 = 10;
    const SENT_PACKETS: u16 = 2;
    let mut tins = Vec::new();
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        for tin in attribute.nested().take_while(|_| attribute.kind == TIN_STATS) {
            let payload = tin?.payload;
            let Statistics { average_delay, target, .. } = tin_statistics(payload)?;
            let mut sent_packets = 0;
            for attribute in attributes(payload) {
                let attribute = attribute?;
                if attribute.kind == SENT_PACKETS {
                    sent_packets = attribute.u32()?;
                }
            }
            tins.push(Tin { sent_packets, average_delay, target });
        }
    }
    Ok(tins)
}

/// tc's words for the modes.
pub fn diffserv_name(mode: u32) -> &'static str {
    ["diffserv3", "diffserv4", "diffserv8", "besteffort", "precedence"].get(mode as usize).copied().unwrap_or("")
}

fn tin_statistics(bytes: &[u8]) -> Result<Statistics, Malformed> {
    const DROPPED_PACKETS: u16 = 4;
    const ECN_MARKED_PACKETS: u16 = 8;
    const BACKLOG_BYTES: u16 = 11;
    const TARGET_US: u16 = 13;
    const AVG_DELAY_US: u16 = 19;
    let mut tin = Statistics::default();
    for attribute in attributes(bytes) {
        let attribute = attribute?;
        let number = || attribute.u32();
        match attribute.kind {
            DROPPED_PACKETS => tin.dropped_packets = number()?,
            ECN_MARKED_PACKETS => tin.ecn_marked = number()?,
            BACKLOG_BYTES => tin.backlog_bytes = u64::from(number()?),
            TARGET_US => tin.target = Duration::from_micros(number()?.into()),
            AVG_DELAY_US => tin.average_delay = Duration::from_micros(number()?.into()),
            _ => {}
        }
    }
    Ok(tin)
}

fn cells_code(cells: Cells) -> u32 {
    match cells {
        Cells::None => 0,
        Cells::Atm => 1,
        Cells::Ptm => 2,
    }
}

/// [`check`] has seen that it fits.
fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAKE: Cake = Cake {
        rtt: Cake::LONG_RTT,
        ..Cake::new(Rate::from_kbit(17_100), Accounting { overhead: 44, mpu: 84, cells: Cells::None })
    };

    #[test]
    fn every_option_is_named_since_a_change_keeps_what_is_not() {
        let bytes = encode(&CAKE, Direction::Upload);
        let mut named: Vec<_> = attributes(&bytes).map(|attribute| attribute.unwrap().kind).collect();
        named.sort_unstable();
        let all: Vec<_> = (BASE_RATE64..=FWMARK).filter(|option| *option != RAW).collect();
        assert_eq!(named, all);
        // The first is the rate, eight bytes in the host's order, bytes a second.
        assert_eq!(bytes[4..12], 2_137_500_u64.to_ne_bytes());
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        let atm = Accounting { overhead: -4, mpu: 0, cells: Cells::Atm };
        let read = decode(&encode(&Cake { accounting: atm, ack_filter: true, ..CAKE }, Direction::Download)).unwrap();
        let wanted = Options {
            bytes_per_second: 2_137_500,
            diffserv: 3,
            flow_mode: 7,
            overhead: -4,
            atm: 1,
            rtt_us: 160_000,
            target_us: 8_000,
            nat: 1,
            wash: 1,
            ingress: 1,
            ack_filter: 1,
            split_gso: 1,
            ..Options::default()
        };
        assert_eq!(read, wanted);
        assert_eq!(read.rate(), Some(Rate::from_kbit(17_100)));
        let upload = decode(&encode(&CAKE, Direction::Upload)).unwrap();
        assert_eq!((upload.overhead, upload.mpu, upload.wash, upload.ingress), (44, 84, 0, 0));
    }

    #[test]
    fn a_difference_is_named_with_both_values() {
        let wanted = decode(&encode(&CAKE, Direction::Upload)).unwrap();
        assert!(wanted.differences(&wanted).is_empty());
        let is = Options { target_us: 5000, raw: true, ..wanted };
        assert_eq!(is.differences(&wanted), ["raw is 1, not 0", "target (us) is 5000, not 8000"]);
    }

    #[test]
    fn settings_that_would_become_others_are_not_sent() {
        let with = |overhead, mpu| Cake { accounting: Accounting { overhead, mpu, cells: Cells::None }, ..CAKE };
        for good in [CAKE, with(-64, 0), with(256, 256), Cake { rate: Rate::from_bits(8), ..CAKE }] {
            assert_eq!(check(&good), Ok(()));
        }
        let short = Cake { rtt: Duration::from_micros(19), ..CAKE };
        let long = Cake { rtt: Duration::from_secs(4295), ..CAKE };
        for bad in [with(-65, 0), with(257, 0), with(0, 257), Cake { rate: Rate::from_bits(7), ..CAKE }, short, long] {
            assert!(check(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn padding_comes_and_goes_and_is_no_difference() {
        let plain = encode(&CAKE, Direction::Upload);
        let padded = [Writer::default().bytes(PAD, &[]).finish(), plain.clone()].concat();
        assert_eq!(without_padding(&padded).unwrap(), plain);
        assert_eq!(without_padding(&plain).unwrap(), plain);
    }

    /// By hand, so that big-endian hosts test their own order.
    #[test]
    fn tins_are_summed_and_the_first_one_gives_the_delay() {
        let tin = |drops, backlog, delay| {
            Writer::default().u32(4, drops).u32(8, 2).u32(11, backlog).u32(13, 5000).u32(19, delay)
        };
        let tins = Writer::default().nest(1, tin(u32::MAX, 1500, 7000)).nest(2, tin(3, 100, 9));
        let read = statistics(&Writer::default().u64(2, 1).nest(10, tins).finish()).unwrap();
        let wanted = Statistics {
            backlog_bytes: 1600,
            dropped_packets: 2,
            ecn_marked: 4,
            average_delay: Duration::from_millis(7),
            target: Duration::from_millis(5),
        };
        assert_eq!(read, wanted);
        assert_eq!(statistics(&[]), Ok(Statistics::default()));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn each_tin_is_read_by_itself() {
        use crate::router::qdisc::recorded;
        let read = tins(&recorded::qdisc(recorded::CAKE_BESTEFFORT_LOADED).statistics).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].average_delay.as_micros(), read[0].target.as_micros()), (348_375, 227_100));
        assert!(read[0].sent_packets > 0);
        assert_eq!(tins(&recorded::qdisc(recorded::CAKE_DIFFSERV4).statistics).unwrap().len(), 4);
        assert_eq!((diffserv_name(1), diffserv_name(3), diffserv_name(9)), ("diffserv4", "besteffort", ""));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn recorded_cakes_are_read_as_tc_reads_them() {
        use crate::router::qdisc::recorded;
        let read = recorded::qdisc(recorded::CAKE_BESTEFFORT_LOADED);
        let wanted = Options {
            bytes_per_second: 10_000,
            wash: 0,
            rtt_us: 100_000,
            target_us: 5000,
            ..decode(&encode(&CAKE, Direction::Upload)).unwrap()
        };
        assert_eq!(decode(&read.options).unwrap(), wanted);
        let wanted = Statistics {
            backlog_bytes: 80_106,
            dropped_packets: 28,
            ecn_marked: 0,
            average_delay: Duration::from_micros(348_375),
            target: Duration::from_micros(227_100),
        };
        assert_eq!(statistics(&read.statistics).unwrap(), wanted);

        let read = decode(&recorded::qdisc(recorded::CAKE_DIFFSERV4).options).unwrap();
        assert_eq!((read.diffserv, read.memory, read.ack_filter, read.atm, read.overhead), (1, 3 << 20, 1, 2, 30));
        assert_eq!(
            (read.ingress, read.wash, read.nat, read.raw, read.rate()),
            (1, 1, 0, false, Some(Rate::from_kbit(9000)))
        );
    }
}
