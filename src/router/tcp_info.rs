//! What the kernel knows of a TCP connection (`struct tcp_info` in include/uapi/linux/tcp.h).
//!
//! Bytes handed to a socket are not bytes delivered: a tool that counted those wrote 322 Mbit/s on a 100/50 line.
//! Here the acknowledgements are counted.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// The fields we use, in the units that we use. What an older kernel does not report is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    pub timestamps: bool,
    pub snd_mss: u32,
    pub rcv_mss: u32,
    /// Segments under way, and those of them that have arrived out of order.
    pub unacked: u32,
    pub sacked: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The receiver's own estimate of it; zero without one.
    pub rcv_rtt: Duration,
    pub total_retrans: u32,
    /// Counts the SYN.
    pub bytes_acked: u64,
    pub bytes_received: u64,
    pub notsent_bytes: u32,
    pub data_segs_in: u32,
    /// Time with data to send or under way; includes the next two.
    pub busy: Duration,
    /// Time in which the receiver's window held the sender back.
    pub rwnd_limited: Duration,
    /// Time in which a full send buffer did.
    pub sndbuf_limited: Duration,
    /// Segments that arrived, as acknowledgements tell. Counts the SYN.
    pub delivered: u32,
    /// Data bytes sent again.
    pub bytes_retrans: u64,
}

/// The part of the structure up to and including `tcpi_bytes_retrans`.
const BYTES: usize = 216;
const TCPI_OPT_TIMESTAMPS: u8 = 1;

impl TcpInfo {
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut raw = [0_u8; BYTES];
        let mut length = BYTES as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is what the buffer has.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                raw.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result == 0 { Ok(Self::read(&raw)) } else { Err(io::Error::last_os_error()) }
    }

    /// The kernel's byte order is the machine's.
    fn read(raw: &[u8; BYTES]) -> Self {
        let word = |at: usize| u32::from_ne_bytes([raw[at], raw[at + 1], raw[at + 2], raw[at + 3]]);
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&raw[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Self {
            timestamps: raw[5] & TCPI_OPT_TIMESTAMPS != 0,
            snd_mss: word(16),
            rcv_mss: word(20),
            unacked: word(24),
            sacked: word(28),
            rtt: Duration::from_micros(u64::from(word(68))),
            rcv_rtt: Duration::from_micros(u64::from(word(92))),
            total_retrans: word(100),
            bytes_acked: long(120),
            bytes_received: long(128),
            notsent_bytes: word(144),
            data_segs_in: word(152),
            busy: Duration::from_micros(long(168)),
            rwnd_limited: Duration::from_micros(long(176)),
            sndbuf_limited: Duration::from_micros(long(184)),
            delivered: word(192),
            bytes_retrans: long(208),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_kernel_header_has_them() {
        let mut raw = [0; BYTES];
        raw[5] = 0b0000_0111;
        for at in (8..104).step_by(4).chain((136..160).step_by(4)).chain([192, 196]) {
            raw[at..at + 4].copy_from_slice(&(at as u32).to_ne_bytes());
        }
        for at in (104..136).step_by(8).chain((160..192).step_by(8)).chain([200, 208]) {
            raw[at..at + 8].copy_from_slice(&(at as u64 * 1_000_000).to_ne_bytes());
        }
        let info = TcpInfo::read(&raw);
        assert!(info.timestamps);
        assert_eq!((info.snd_mss, info.rcv_mss, info.unacked, info.sacked, info.total_retrans), (16, 20, 24, 28, 100));
        assert_eq!((info.rtt, info.rcv_rtt), (Duration::from_micros(68), Duration::from_micros(92)));
        assert_eq!(
            (info.bytes_acked, info.bytes_received, info.bytes_retrans),
            (120_000_000, 128_000_000, 208_000_000)
        );
        assert_eq!((info.notsent_bytes, info.data_segs_in), (144, 152));
        assert_eq!((info.busy, info.rwnd_limited), (Duration::from_secs(168), Duration::from_secs(176)));
        assert_eq!((info.sndbuf_limited, info.delivered), (Duration::from_secs(184), 192));
    }
}
