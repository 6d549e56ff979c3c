//! What a device and its CAKE have counted since a start, each with the time of its reading.

use super::cake::{self, Statistics};
use super::device::{self, Device};
use super::netlink::Socket;
use super::qdisc::{self, Handle, Qdisc};
use crate::line::{LineError, Queue, Seen};
use crate::units::{Direction, millis};
use std::time::Instant;

/// Counts in IP bytes: link headers are taken off, so many bytes a packet. Where a driver counts a batch of segments
/// (TSO) as one packet, the headers of the others stay in: CAKE's `split-gso` keeps that from the device it shapes.
pub struct Counters {
    socket: Socket,
    device: Mark<device::Counted>,
    /// Between an IP packet and what its queue counts.
    header: u64,
    queues: Vec<Watched>,
}

struct Mark<T> {
    index: i32,
    name: String,
    start: T,
}

/// A device on which a shaper may stand.
struct Watched {
    direction: Direction,
    device: Mark<Option<Started>>,
}

/// CAKE's counters at the start.
#[derive(Clone, Copy)]
struct Started {
    handle: Handle,
    counted: qdisc::Counted,
    statistics: Statistics,
}

impl Counters {
    /// `queues` are the devices whose root may be a shaper: for upload the device itself, for download the IFB that its
    /// packets are led through.
    pub fn open(device: &Device, queues: &[(Direction, &Device)]) -> Result<Self, LineError> {
        let watched =
            |(direction, device): &(Direction, &Device)| Watched { direction: *direction, device: mark(device, None) };
        let mut counters = Self {
            socket: Socket::open()?,
            device: mark(device, device.counted),
            header: device.header_bytes(),
            queues: queues.iter().map(watched).collect(),
        };
        counters.start()?;
        Ok(counters)
    }

    /// From here on differences are counted. To be called after each change of the shaper.
    pub fn start(&mut self) -> Result<Instant, LineError> {
        for Watched { device, .. } in &mut self.queues {
            let root = qdisc::root(&mut self.socket, device.index)?;
            device.start = root.filter(|root| cake::is_cake(&root.kind)).map(|root| started(&root)).transpose()?;
        }
        let (at, counted) = self.read_device()?;
        self.device.start = counted;
        Ok(at)
    }

    /// [`Seen::Device`], and a [`Seen::Queue`] for each shaper, with the times at which they were read.
    ///
    /// # Errors
    /// [`LineError::Disturbed`] if the device or a shaper is no longer the one it was at the start.
    pub fn read(&mut self) -> Result<Vec<(Instant, Seen)>, LineError> {
        let mut seen = Vec::with_capacity(1 + self.queues.len());
        for Watched { direction, device } in &self.queues {
            let root = qdisc::root(&mut self.socket, device.index)?;
            let at = Instant::now();
            if let Some(queue) = queue_since(device, root.as_ref(), *direction, self.header)? {
                seen.push((at, Seen::Queue(queue)));
            }
        }
        let (at, now) = self.read_device()?;
        let since = device_since(self.device.start, now, self.header).ok_or_else(|| disturbed(&self.device.name))?;
        seen.push((at, since));
        Ok(seen)
    }

    fn read_device(&mut self) -> Result<(Instant, device::Counted), LineError> {
        let found = device::by_index(&mut self.socket, self.device.index)?;
        let at = Instant::now();
        Ok((at, found.ok_or_else(|| disturbed(&self.device.name))?.counted))
    }
}

fn mark<T>(device: &Device, start: T) -> Mark<T> {
    Mark { index: device.index, name: device.name.clone(), start }
}

fn disturbed(device: &str) -> LineError {
    LineError::Disturbed { what: format!("the device {device}") }
}

fn started(root: &Qdisc) -> Result<Started, LineError> {
    let statistics =
        cake::statistics(&root.statistics).map_err(|error| LineError::failed("read CAKE's counters", error))?;
    Ok(Started { handle: root.handle, counted: root.counted, statistics })
}

/// `None` where counters ran backwards: it is another device.
fn device_since(start: device::Counted, now: device::Counted, header: u64) -> Option<Seen> {
    let since = |bytes: u64, bytes0: u64, packets: u64, packets0: u64| {
        ip_bytes(bytes.checked_sub(bytes0)?, packets.checked_sub(packets0)?, header)
    };
    Some(Seen::Device {
        sent_bytes: since(now.sent_bytes, start.sent_bytes, now.sent_packets, start.sent_packets)?,
        received_bytes: since(now.received_bytes, start.received_bytes, now.received_packets, start.received_packets)?,
    })
}

/// A reading may have a packet whose bytes are not counted yet.
fn ip_bytes(bytes: u64, packets: u64, header: u64) -> Option<u64> {
    Some(bytes.saturating_sub(packets.checked_mul(header)?))
}

fn queue_since(
    device: &Mark<Option<Started>>,
    root: Option<&Qdisc>,
    direction: Direction,
    header: u64,
) -> Result<Option<Queue>, LineError> {
    let disturbed = || LineError::Disturbed { what: format!("the shaper of {}", device.name) };
    let now = root.filter(|root| cake::is_cake(&root.kind)).map(started).transpose()?;
    let (start, now) = match (device.start, now) {
        (None, None) => return Ok(None),
        (Some(start), Some(now)) if start.handle == now.handle => (start, now),
        _ => return Err(disturbed()),
    };
    let sent_packets = now.counted.sent_packets.checked_sub(start.counted.sent_packets).ok_or_else(disturbed)?;
    let sent_bytes = now.counted.sent_bytes.checked_sub(start.counted.sent_bytes).ok_or_else(disturbed)?;
    let counted = |now: u32, start: u32| u64::from(now.wrapping_sub(start));
    Ok(Some(Queue {
        direction,
        backlog_bytes: now.statistics.backlog_bytes,
        sent_bytes: ip_bytes(sent_bytes, sent_packets, header).ok_or_else(disturbed)?,
        sent_packets,
        dropped_packets: counted(now.statistics.dropped_packets, start.statistics.dropped_packets),
        ecn_marked: counted(now.statistics.ecn_marked, start.statistics.ecn_marked),
        avg_delay_ms: millis(now.statistics.average_delay),
        target_ms: millis(now.statistics.target),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(sent_packets: u64, sent_bytes: u64) -> device::Counted {
        device::Counted { sent_packets, sent_bytes, ..device::Counted::default() }
    }

    fn shaper(handle: u32, sent_packets: u64, sent_bytes: u64, dropped_packets: u32) -> Started {
        let counted = qdisc::Counted { sent_bytes, sent_packets, ..qdisc::Counted::default() };
        Started { handle: Handle(handle), counted, statistics: Statistics { dropped_packets, ..Statistics::default() } }
    }

    fn cake(handle: u32, sent_packets: u64, sent_bytes: u64) -> Qdisc {
        let counted = qdisc::Counted { sent_bytes, sent_packets, ..qdisc::Counted::default() };
        Qdisc { kind: "cake".into(), handle: Handle(handle), counted, ..Qdisc::default() }
    }

    #[test]
    fn headers_are_taken_off_once_a_packet() {
        let seen = device_since(counted(100, 50_000), counted(110, 65_140), 14);
        assert_eq!(seen, Some(Seen::Device { sent_bytes: 15_000, received_bytes: 0 }));
        assert_eq!(device_since(counted(100, 50_000), counted(99, 50_000), 14), None);
    }

    #[test]
    fn a_queue_counts_from_its_start_and_small_counters_wrap() {
        let mark = Mark { index: 2, name: "eth0".into(), start: Some(shaper(0x5351_0000, 10, 1_514, u32::MAX)) };
        let queue = queue_since(&mark, Some(&cake(0x5351_0000, 12, 4_542)), Direction::Upload, 14).unwrap().unwrap();
        assert_eq!((queue.sent_packets, queue.sent_bytes, queue.dropped_packets), (2, 3_000, 1));
    }

    #[test]
    fn another_shaper_is_a_disturbance_and_none_at_all_is_no_queue() {
        let mut mark = Mark { index: 2, name: "eth0".into(), start: Some(shaper(0x5351_0000, 10, 1_514, 0)) };
        let disturbed = [None, Some(cake(0x8001_0000, 12, 4_542)), Some(cake(0x5351_0000, 1, 4_542))];
        for root in disturbed {
            let error = queue_since(&mark, root.as_ref(), Direction::Upload, 14).unwrap_err();
            assert_eq!(error, LineError::Disturbed { what: "the shaper of eth0".into() });
        }
        mark.start = None;
        let default = Qdisc { kind: "fq_codel".into(), ..Qdisc::default() };
        assert_eq!(queue_since(&mark, Some(&default), Direction::Upload, 14), Ok(None));
        assert!(queue_since(&mark, Some(&cake(0x8001_0000, 12, 4_542)), Direction::Upload, 14).is_err());
    }
}
