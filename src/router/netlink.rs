//! A small synchronous netlink socket: requests, acknowledgements, dumps.
//!
//! Why not `rtnetlink`: with `netlink-packet-route` it took 875 kB of a router package of 2.8 MB (mipsel); the
//! `netlink-proto` below it drops messages it cannot decode, so a dump gets shorter without an error; its qdisc
//! builder sets neither kind nor options, which is all we need of it. And a socket that needs no runtime can put
//! back from `Drop`, while a panic unwinds, and from `restore`.

use super::attribute::Malformed;
use super::message::{End, Message, Request, ending, framed, messages};
use crate::line::LineError;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The kernel answers at once; this is for one that does not answer at all.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A dump that changed under our eyes is asked for again this often.
const DUMP_TRIES: usize = 10;
/// The kernel fills at most 32 KiB per message of a dump (`netlink_dump` in af_netlink.c).
const BUFFER: usize = 64 * 1024;

/// What goes wrong between us and the kernel, with the operation and its object in words.
#[derive(Debug, thiserror::Error)]
#[error("cannot {operation}: {cause}")]
pub struct Error {
    pub operation: String,
    pub cause: Cause,
}

#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The kernel's number, and its words where it has any.
    #[error("{}", kernel_words(*.errno, .said.as_deref()))]
    Kernel { errno: i32, said: Option<String> },
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
    #[error("the kernel did not answer within {} s", TIMEOUT.as_secs())]
    Silent,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the list kept changing while it was read")]
    Restless,
}

fn kernel_words(errno: i32, said: Option<&str>) -> String {
    let error = io::Error::from_raw_os_error(errno);
    said.map_or_else(|| error.to_string(), |said| format!("{said} ({error})"))
}

impl Error {
    /// The kernel's error number, if it was the kernel that said no.
    pub fn errno(&self) -> Option<i32> {
        match self.cause {
            Cause::Kernel { errno, .. } => Some(errno),
            _ => None,
        }
    }
}

impl From<Error> for LineError {
    fn from(error: Error) -> Self {
        match error.errno() {
            Some(libc::EPERM | libc::EACCES) => {
                Self::refused(format!("no permission to {}", error.operation), "Run as root (CAP_NET_ADMIN is needed)")
            }
            _ => Self::failed(error.operation, error.cause),
        }
    }
}

/// A `NETLINK_ROUTE` socket in the network namespace of the thread that opened it.
pub struct Socket {
    descriptor: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    pub fn open() -> Result<Self, Error> {
        open_route_socket().map_err(|cause| Error { operation: "open a netlink socket".into(), cause: cause.into() })
    }

    /// Asks and waits for the acknowledgement.
    pub fn command(&mut self, operation: impl Fn() -> String, request: Request) -> Result<(), Error> {
        self.query(operation, request, |_| Ok(None::<()>)).map(drop)
    }

    /// Asks and collects what `parse` makes of each answer. With `NLM_F_DUMP` it is the whole list: one that changed
    /// while it was read is read again.
    pub fn query<T>(
        &mut self,
        operation: impl Fn() -> String,
        request: Request,
        mut parse: impl FnMut(Message) -> Result<Option<T>, Malformed>,
    ) -> Result<Vec<T>, Error> {
        let failed = |cause| Error { operation: operation(), cause };
        for _ in 0..DUMP_TRIES {
            self.send(request).map_err(|error| failed(error.into()))?;
            match self.collect(&mut parse) {
                Ok(Some(answers)) => return Ok(answers),
                Ok(None) => {}
                Err(cause) => {
                    self.start_afresh(&cause);
                    return Err(failed(cause));
                }
            }
        }
        Err(failed(Cause::Restless))
    }

    /// After an answer that was not read to its end the next request must not meet the rest of it.
    fn start_afresh(&mut self, cause: &Cause) {
        if !matches!(cause, Cause::Kernel { .. })
            && let Ok(socket) = open_route_socket()
        {
            *self = socket;
        }
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = framed(request, self.sequence);
        // SAFETY: the pointer and the length are those of a live buffer.
        let sent = retried(|| unsafe {
            libc::send(self.descriptor.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) as i64
        })?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Reads up to the end of the answer. `None`: it was a dump of something that changed meanwhile.
    fn collect<T>(
        &mut self,
        parse: &mut impl FnMut(Message) -> Result<Option<T>, Malformed>,
    ) -> Result<Option<Vec<T>>, Cause> {
        let mut answers = Vec::new();
        // Kept until the dump is over: the socket must not be left in the middle of one.
        let mut malformed = None;
        let mut interrupted = false;
        loop {
            let length = self.receive()?;
            let datagram = &self.buffer[..length];
            for message in messages(datagram) {
                let message = message?;
                if message.sequence != self.sequence {
                    continue;
                }
                interrupted |= message.is_interrupted();
                match ending(&message)? {
                    Some(End::Done) => return malformed.map_or(Ok((!interrupted).then_some(answers)), Err),
                    Some(End::Interrupted) => return Ok(None),
                    Some(End::Refused { errno, said }) => return Err(Cause::Kernel { errno, said }),
                    None => match parse(message) {
                        Ok(answer) => answers.extend(answer),
                        Err(error) => malformed = malformed.or(Some(error.into())),
                    },
                }
            }
        }
    }

    /// One datagram from the kernel (anybody else's is thrown away).
    fn receive(&mut self) -> Result<usize, Cause> {
        loop {
            if !comes(&self.descriptor, TIMEOUT)? {
                return Err(Cause::Silent);
            }
            let (length, sender) = receive_from(&self.descriptor, &mut self.buffer)?;
            if length > self.buffer.len() {
                return Err(Malformed("an answer larger than any the kernel should send").into());
            }
            if sender == 0 {
                return Ok(length);
            }
        }
    }
}

fn open_route_socket() -> io::Result<Socket> {
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers; the descriptor is new and ours alone.
    let descriptor = unsafe {
        let number = libc::socket(libc::AF_NETLINK, flags, libc::NETLINK_ROUTE);
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(number)
    };
    // Only for better words: a kernel without them (before 4.12) works as well.
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        switch_on(&descriptor, option);
    }
    // The kernel gives an address at the first send.
    Ok(Socket { descriptor, sequence: 0, buffer: vec![0; BUFFER] })
}

fn switch_on(descriptor: &OwnedFd, option: i32) {
    let one = 1_i32;
    let (value, length) = (std::ptr::from_ref(&one).cast(), size_of::<i32>() as libc::socklen_t);
    // SAFETY: the pointer and the length are those of `one`.
    unsafe { libc::setsockopt(descriptor.as_raw_fd(), libc::SOL_NETLINK, option, value, length) };
}

/// Whether something comes in time. (`SO_RCVTIMEO` takes a structure that differs between C libraries.)
fn comes(descriptor: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = timeout.as_millis() as i32;
    // SAFETY: one live structure.
    retried(|| unsafe { libc::poll(&raw mut poll, 1, milliseconds) as i64 }).map(|ready| ready > 0)
}

/// The length of the datagram (larger than the buffer if it did not fit) and the port of its sender (the kernel's is 0).
fn receive_from(descriptor: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, u32)> {
    // SAFETY: an address of zeroes is a valid one.
    let mut sender: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    let length = retried(|| {
        let mut size = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
        let address = std::ptr::from_mut(&mut sender).cast();
        // SAFETY: all pointers and lengths are those of live values that nothing else uses meanwhile.
        unsafe {
            let (data, room) = (buffer.as_mut_ptr().cast(), buffer.len());
            libc::recvfrom(descriptor.as_raw_fd(), data, room, libc::MSG_TRUNC, address, &raw mut size) as i64
        }
    })?;
    Ok((length, sender.nl_pid))
}

/// A system call again when a signal came in between.
fn retried(mut call: impl FnMut() -> i64) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    /// A socket with somebody else than the kernel at its other end, who has already answered.
    fn answered(datagrams: &[&[Vec<u8>]]) -> (Socket, UnixDatagram) {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        for datagram in datagrams {
            theirs.send(&datagram.concat()).unwrap();
        }
        (Socket { descriptor: ours.into(), sequence: 0, buffer: vec![0; 256] }, theirs)
    }

    fn message(kind: i32, flags: i32, sequence: u32, body: u32) -> Vec<u8> {
        let mut bytes = framed(Request { kind: kind as u16, flags: 0, body: &body.to_ne_bytes() }, sequence);
        bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        bytes
    }

    fn ask(socket: &mut Socket) -> Result<Vec<u8>, Error> {
        let request = Request { kind: 38, flags: libc::NLM_F_DUMP, body: &[] };
        // The first byte in the host's order, whatever that is; 99 makes no sense.
        let parse = |message: Message| match u32::from_ne_bytes(message.body.try_into().unwrap()) {
            99 => Err(Malformed("99")),
            number => Ok(Some(number as u8)),
        };
        socket.query(|| "list it".into(), request, parse)
    }

    const ITEM: i32 = 36;
    const DONE: i32 = libc::NLMSG_DONE;
    const MULTI: i32 = libc::NLM_F_MULTI;

    #[test]
    fn a_dump_may_come_in_parts_and_leftovers_of_an_older_one_are_no_part_of_it() {
        let stale = [message(ITEM, MULTI, 0, 7), message(DONE, MULTI, 0, 0)];
        let first = [message(ITEM, MULTI, 1, 1), message(ITEM, MULTI, 1, 2)];
        let (mut socket, _theirs) =
            answered(&[&stale, &first, &[message(ITEM, MULTI, 1, 3)], &[message(DONE, MULTI, 1, 0)]]);
        assert_eq!(ask(&mut socket).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn a_list_that_changed_while_it_was_read_is_read_again() {
        let interrupted = MULTI | libc::NLM_F_DUMP_INTR;
        let first = [message(ITEM, MULTI, 1, 1), message(ITEM, interrupted, 1, 2), message(DONE, MULTI, 1, 0)];
        let lost = [message(ITEM, MULTI, 2, 1), message(DONE, MULTI, 2, (-libc::EINTR).cast_unsigned())];
        let third = [message(ITEM, MULTI, 3, 5), message(DONE, MULTI, 3, 0)];
        let (mut socket, theirs) = answered(&[&first, &lost, &third]);
        assert_eq!(ask(&mut socket).unwrap(), [5]);
        let mut asked = [0; 64];
        assert_eq!((0..3).map(|_| theirs.recv(&mut asked).unwrap()).sum::<usize>(), 3 * 16);
    }

    #[test]
    fn one_that_never_rests_is_an_error() {
        let answers: Vec<_> = (1..=10).map(|n| [message(DONE, MULTI | libc::NLM_F_DUMP_INTR, n, 0)]).collect();
        let answers: Vec<_> = answers.iter().map(<[_; 1]>::as_slice).collect();
        let (mut socket, _theirs) = answered(&answers);
        assert!(matches!(ask(&mut socket).unwrap_err().cause, Cause::Restless));
    }

    #[test]
    fn what_makes_no_sense_is_an_error_and_not_a_shorter_list() {
        let answer = [message(ITEM, MULTI, 1, 1), message(ITEM, MULTI, 1, 99), message(DONE, MULTI, 1, 0)];
        let (mut socket, _theirs) = answered(&[&answer]);
        assert_eq!(ask(&mut socket).unwrap_err().to_string(), "cannot list it: malformed answer: 99");
        let mut cut = message(ITEM, MULTI, 1, 1);
        cut.pop();
        let (mut socket, _theirs) = answered(&[&[cut]]);
        assert!(matches!(ask(&mut socket).unwrap_err().cause, Cause::Malformed(_)));
        let (mut socket, _theirs) = answered(&[&[vec![0; 300]]]);
        assert!(matches!(ask(&mut socket).unwrap_err().cause, Cause::Malformed(_)));
    }

    #[test]
    fn the_kernels_refusal_is_told_with_what_was_tried() {
        let (mut socket, _theirs) = answered(&[&[message(libc::NLMSG_ERROR, 0, 1, (-libc::ENODEV).cast_unsigned())]]);
        let error = ask(&mut socket).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
        assert!(error.to_string().starts_with("cannot list it: No such device"), "{error}");
    }

    #[test]
    fn no_permission_is_told_as_such() {
        let cause = Cause::Kernel { errno: libc::EPERM, said: None };
        let error = LineError::from(Error { operation: "set CAKE on eth0".into(), cause });
        assert!(matches!(&error, LineError::Refused { fix, .. } if fix.contains("root")), "{error}");
    }
}
