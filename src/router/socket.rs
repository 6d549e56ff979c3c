//! How our packets leave: the device, the mark, the segment size.
//!
//! mwan3 steers programs by an LD_PRELOAD that a static binary never sees, so the socket options are set here.

use super::forwarder::Namespace;
use crate::line::LineError;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream};

/// The way out that every socket of a line takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Via {
    /// `SO_BINDTODEVICE`. `None`: as the routing table says.
    pub device: Option<String>,
    /// `SO_MARK`, for routers with several uplinks.
    pub mark: Option<u32>,
    /// The network namespace that the socket belongs to. `None`: ours.
    pub space: Option<Namespace>,
}

/// A connection that takes longer than this to be made is not made (two lost SYNs: 1 s + 2 s, RFC 6298).
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much may wait unsent in a socket. Enough for 25 ms at 40 Mbit/s, and sixty flows still fit in a small router.
const UNSENT_BYTES: u32 = 128 * 1024;

/// What the kernel accepts for TCP_MAXSEG (TCP_MIN_MSS in include/net/tcp.h).
const SMALLEST_MSS: u32 = 88;

impl Via {
    /// Binds and marks a socket of any kind.
    pub(crate) fn apply(&self, socket: &Socket) -> io::Result<()> {
        if let Some(device) = &self.device {
            socket.bind_device(Some(device.as_bytes())).map_err(|error| named(&error, "bind a socket to", device))?;
        }
        if let Some(mark) = self.mark {
            socket.set_mark(mark).map_err(|error| named(&error, "set the mark", &format!("{mark:#x}")))?;
        }
        Ok(())
    }

    fn stream_socket(&self, domain: Domain) -> io::Result<Socket> {
        let make = || Socket::new(domain, Type::STREAM.nonblocking(), Some(Protocol::TCP));
        let Some(space) = &self.space else { return make() };
        let socket = space.within(make)?;
        // A closed connection with data under way would keep the namespace alive, after a kill for minutes.
        socket.set_linger(Some(Duration::ZERO))?;
        Ok(socket)
    }

    /// Connects; with `mss`, no segment in either direction carries more than that, TCP options included.
    pub async fn connect(&self, to: SocketAddr, mss: Option<u32>) -> io::Result<TcpStream> {
        let socket = self.stream_socket(Domain::for_address(to))?;
        self.apply(&socket)?;
        if let Some(mss) = mss {
            socket.set_tcp_mss(mss.max(SMALLEST_MSS))?;
        }
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(Duration::from_secs(10)))?;
        // SAFETY: the descriptor was just given up by `socket` and is a stream socket.
        let socket = unsafe { TcpSocket::from_raw_fd(socket.into_raw_fd()) };
        match tokio::time::timeout(CONNECT_TIMEOUT, socket.connect(to)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer to the connection request")),
        }
    }
}

fn named(error: &io::Error, operation: &str, what: &str) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {operation} {what}: {error}"))
}

/// A second handle on a connection that somebody else drives, to look at it and to break it off.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    pub fn of(stream: &TcpStream) -> io::Result<Self> {
        Ok(Self(stream.as_fd().try_clone_to_owned()?))
    }

    pub fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Breaks the connection off: what is unsent is thrown away, the peer gets a reset.
    /// Connecting to no family at all is how Linux spells it (`tcp_disconnect`).
    pub fn reset(&self) {
        let nowhere = libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };
        // SAFETY: the descriptor is open, the address is a whole `sockaddr`.
        let result = unsafe {
            libc::connect(self.0.as_raw_fd(), &raw const nowhere, size_of::<libc::sockaddr>() as libc::socklen_t)
        };
        if result != 0 {
            log::debug!("cannot break off a connection: {}", io::Error::last_os_error());
        }
    }
}

/// The addresses of a name, or the address that it spells, in the order in which they should be tried (RFC 6724).
pub(crate) async fn look_up(host: &str, port: u16) -> Result<Vec<SocketAddr>, LineError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let found: Vec<_> = match tokio::net::lookup_host((bare, port)).await {
        Ok(found) => found.collect(),
        Err(error) => {
            return Err(LineError::refused(format!("the name {bare} cannot be resolved ({error})"), LOOK_UP_FIX));
        }
    };
    if found.is_empty() {
        return Err(LineError::refused(format!("the name {bare} has no address"), LOOK_UP_FIX));
    }
    Ok(found)
}

const LOOK_UP_FIX: &str = "Check the spelling and the router's DNS, or give an address";
