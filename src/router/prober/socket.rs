//! A socket that sends echo requests and says when, by the kernel's clock, a packet came in.

use super::echo::{self, Cookie, Family};
use crate::line::LineError;
use crate::router::socket::Via;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::unix::AsyncFd;

#[derive(Debug)]
pub struct EchoSocket {
    family: Family,
    socket: AsyncFd<Socket>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sees every ICMP packet of the machine; the identifier is ours.
    Raw { id: u16 },
    /// Sees replies to its own requests; the kernel chooses the identifier.
    Ping,
}

/// The numbers of linux/icmp.h and linux/icmpv6.h that libc does not have.
const ICMP_FILTER: libc::c_int = 1;
const ICMPV6_FILTER: libc::c_int = 1;

/// Two 64-bit words on every machine, unlike the older option (include/uapi/asm-generic/socket.h; Linux 5.1).
const SO_TIMESTAMPNS_NEW: libc::c_int = 64;

/// More than an echo reply with the longest IPv4 header.
const PACKET_BYTES: usize = 256;

impl EchoSocket {
    /// Raw where that is allowed, else a ping socket (`net.ipv4.ping_group_range`).
    pub fn open(family: Family, via: &Via, id: u16) -> Result<Self, LineError> {
        let (domain, protocol) = match family {
            Family::V4 => (Domain::IPV4, Protocol::ICMPV4),
            Family::V6 => (Domain::IPV6, Protocol::ICMPV6),
        };
        let (socket, kind) = match Socket::new(domain, Type::RAW, Some(protocol)) {
            Ok(socket) => (socket, Kind::Raw { id }),
            Err(raw) => match Socket::new(domain, Type::DGRAM, Some(protocol)) {
                Ok(socket) => (socket, Kind::Ping),
                Err(_) => {
                    return Err(LineError::refused(
                        format!("sending pings is not allowed ({raw})"),
                        "Run it as root, or allow ping sockets with sysctl net.ipv4.ping_group_range",
                    ));
                }
            },
        };
        let ready = || -> io::Result<AsyncFd<Socket>> {
            socket.set_nonblocking(true)?;
            via.apply(&socket)?;
            if let Err(error) = set_option(&socket, libc::SOL_SOCKET, SO_TIMESTAMPNS_NEW, &1) {
                log::warn!("the kernel does not stamp packets ({error}): a busy processor will look like delay");
            }
            if let Kind::Raw { .. } = kind {
                only_replies(&socket, family)?;
            }
            // SAFETY: the socket owns its descriptor and gives it out by reference only.
            Ok(unsafe { AsyncFd::register(socket) }?)
        };
        let socket = ready().map_err(|error| LineError::failed("open a socket for pings", error))?;
        Ok(Self { family, socket, kind })
    }

    /// From now on nobody cuts its packets in two: neither we, whatever we have been told of the path, nor a router.
    pub fn whole(self) -> io::Result<Self> {
        let (level, name, value) = match self.family {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
        };
        set_option(self.socket.get_ref(), level, name, &value)?;
        Ok(self)
    }

    /// Sends probe `number` of so many bytes, and says when: the clock is read last before the kernel is called.
    pub fn send(&self, to: IpAddr, number: u32, cookie: Cookie, length: usize) -> io::Result<Instant> {
        let id = if let Kind::Raw { id } = self.kind { id } else { 0 };
        let packet = echo::request(self.family, id, number, cookie, length);
        let to = SockAddr::from(SocketAddr::new(to, 0));
        let sent = Instant::now();
        self.socket.get_ref().send_to(&packet, &to)?;
        Ok(sent)
    }

    /// The next reply to one of ours: its number and the time at which the kernel had it.
    pub async fn receive(&self, cookie: Cookie) -> io::Result<(u32, Instant)> {
        let id = if let Kind::Raw { id } = self.kind { Some(id) } else { None };
        loop {
            let mut ready = self.socket.readable().await?;
            let mut buffer = [0; PACKET_BYTES];
            match ready.try_io(|socket| receive(socket.as_raw_fd(), &mut buffer)) {
                Ok(Ok((length, at))) => {
                    let packet = &buffer[..length];
                    // A raw IPv4 socket delivers the IP header too; no other does.
                    let packet = if self.family == Family::V4 && id.is_some() {
                        echo::after_ipv4_header(packet)
                    } else {
                        Some(packet)
                    };
                    if let Some(number) = packet.and_then(|packet| echo::reply(self.family, packet, id, cookie)) {
                        return Ok((number, at));
                    }
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Err(error),
                Err(_would_block) => {}
            }
        }
    }
}

/// Spares us everybody else's ICMP: only echo replies get through.
fn only_replies(socket: &Socket, family: Family) -> io::Result<()> {
    match family {
        // A bit that is set blocks its type (raw(7)).
        Family::V4 => set_option(socket, libc::SOL_RAW, ICMP_FILTER, &!1_u32),
        // The same, in eight words for 256 types (RFC 3542).
        Family::V6 => {
            let mut blocked = [u32::MAX; 8];
            blocked[129 / 32] &= !(1 << (129 % 32));
            set_option(socket, libc::IPPROTO_ICMPV6, ICMPV6_FILTER, &blocked)
        }
    }
}

fn set_option<T>(socket: &Socket, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value lives through the call and its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One packet, and when the kernel took it in: now, less what passed since by the clock that the kernel stamps with.
fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<(usize, Instant)> {
    let mut control = [MaybeUninit::<u64>::uninit(); 16];
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr, and its fields differ between C libraries.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all that the message points to lives until after the last use of it below.
    let length = unsafe { libc::recvmsg(fd, &raw mut message, 0) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    let (now, wall) = (Instant::now(), SystemTime::now());
    let late = stamp(&message).map_or(Duration::ZERO, |stamp| lateness(stamp, wall));
    Ok((length as usize, now.checked_sub(late).unwrap_or(now)))
}

/// How long a packet waited for us. A wall clock that was set meanwhile makes no sense, and then we were on time.
fn lateness(stamp: Duration, wall: SystemTime) -> Duration {
    let wall = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
    wall.checked_sub(stamp).filter(|late| *late < Duration::from_secs(1)).unwrap_or_default()
}

/// The kernel's time stamp of a message, since 1970.
fn stamp(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: the kernel filled the control buffer that the message still points to.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return whole headers or null.
        let (level, kind, data) = unsafe { ((*header).cmsg_level, (*header).cmsg_type, libc::CMSG_DATA(header)) };
        if level == libc::SOL_SOCKET && kind == SO_TIMESTAMPNS_NEW {
            // SAFETY: behind such a header the kernel puts a `__kernel_timespec`; it need not be aligned for us.
            let (seconds, nanoseconds) =
                unsafe { (ptr::read_unaligned(data.cast::<i64>()), ptr::read_unaligned(data.add(8).cast::<i64>())) };
            return Some(Duration::new(seconds.try_into().ok()?, nanoseconds.try_into().ok()?));
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_for_us_is_taken_off_unless_the_clock_was_set() {
        let wall = UNIX_EPOCH + Duration::from_secs(5);
        assert_eq!(lateness(Duration::from_millis(4_990), wall), Duration::from_millis(10));
        assert_eq!(lateness(Duration::from_millis(5_010), wall), Duration::ZERO, "set back");
        assert_eq!(lateness(Duration::from_secs(1), wall), Duration::ZERO, "set forward");
    }
}
