//! A small synchronous netlink socket: requests, acknowledgements, dumps.
//!
//! Why not `rtnetlink`: with `netlink-packet-route` it took 875 kB of a router package of 2.8 MB (mipsel); the
//! `netlink-proto` below it drops messages it cannot decode, so a dump gets shorter without an error; its qdisc
//! builder sets neither kind nor options, which is all we need of it. And a socket that needs no runtime can put
//! back from `Drop`, while a panic unwinds, and from `restore`.

use super::attribute::{Malformed, aligned, attributes, u16_at, u32_at};
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
const HEADER: usize = 16;

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

/// What is asked: a message type with its flags (`NLM_F_REQUEST` and `NLM_F_ACK` are added) and body.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub kind: u16,
    pub flags: i32,
    pub body: &'a [u8],
}

/// One message from the kernel, without its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: u16,
    flags: u16,
    sequence: u32,
    pub body: &'a [u8],
}

#[cfg(test)]
impl<'a> Message<'a> {
    /// As if it had come from the kernel.
    pub fn new(kind: u16, body: &'a [u8]) -> Self {
        Self { kind, flags: 0, sequence: 0, body }
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
                interrupted |= message.flags & libc::NLM_F_DUMP_INTR as u16 != 0;
                match ending(&message)? {
                    Some(End::Done) => return malformed.map_or(Ok((!interrupted).then_some(answers)), Err),
                    Some(End::Interrupted) => return Ok(None),
                    Some(End::Refused(cause)) => return Err(cause),
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
            let (length, sender) = receive_from(&self.descriptor, &mut self.buffer).map_err(|error| {
                if error.kind() == io::ErrorKind::WouldBlock { Cause::Silent } else { Cause::Socket(error) }
            })?;
            if length > self.buffer.len() {
                return Err(Malformed("an answer larger than any the kernel should send").into());
            }
            if sender == 0 {
                return Ok(length);
            }
        }
    }
}

enum End {
    Done,
    Interrupted,
    Refused(Cause),
}

/// Whether this message ends the answer, and how. Pure: all of the protocol's odd corners are here.
fn ending(message: &Message) -> Result<Option<End>, Malformed> {
    let (errno, words) = match i32::from(message.kind) {
        // The error is followed by the header it answers (NETLINK_CAP_ACK keeps the kernel from adding its body).
        libc::NLMSG_ERROR => (u32_at(message.body, 0)?, message.body.get(4 + HEADER..)),
        // A dump's end may bear an error too (kernels since 4.20); older ones leave it out.
        libc::NLMSG_DONE => (u32_at(message.body, 0).unwrap_or(0), message.body.get(4..)),
        libc::NLMSG_OVERRUN => return Err(Malformed("the kernel lost a part of it")),
        _ => return Ok(None),
    };
    let errno = errno.cast_signed().wrapping_neg();
    let said = if message.flags & libc::NLM_F_ACK_TLVS as u16 == 0 { None } else { words.and_then(extended_words) };
    Ok(Some(match errno {
        0 => {
            if let Some(said) = said {
                log::debug!("netlink: {said}");
            }
            End::Done
        }
        // A dump that lost its place (`-EINTR` at its end, net/netlink).
        libc::EINTR => End::Interrupted,
        _ => End::Refused(Cause::Kernel { errno, said }),
    }))
}

/// `NLMSGERR_ATTR_MSG`: the kernel's own words. Their absence or damage is no reason to lose the number.
fn extended_words(bytes: &[u8]) -> Option<String> {
    attributes(bytes).flatten().find(|attribute| attribute.kind == 1)?.text().ok()
}

fn framed(request: Request, sequence: u32) -> Vec<u8> {
    let flags = request.flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK;
    let length = (HEADER + request.body.len()) as u32;
    let mut bytes = Vec::with_capacity(HEADER + request.body.len());
    bytes.extend_from_slice(&length.to_ne_bytes());
    bytes.extend_from_slice(&request.kind.to_ne_bytes());
    bytes.extend_from_slice(&(flags as u16).to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0_u32.to_ne_bytes());
    bytes.extend_from_slice(request.body);
    bytes
}

/// The messages of one datagram.
fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let bytes = std::mem::take(&mut rest);
        if bytes.is_empty() {
            return None;
        }
        let message = message(bytes);
        if let Ok((_, length)) = message {
            rest = bytes.get(aligned(length)..).unwrap_or(&[]);
        }
        Some(message.map(|(message, _)| message))
    })
}

fn message(bytes: &[u8]) -> Result<(Message<'_>, usize), Malformed> {
    let length = u32_at(bytes, 0)? as usize;
    let body = bytes.get(HEADER..length).ok_or(Malformed("a message's length leads outside of what came"))?;
    let message = Message { kind: u16_at(bytes, 4)?, flags: u16_at(bytes, 6)?, sequence: u32_at(bytes, 8)?, body };
    Ok((message, length))
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
    let timeout = libc::timeval { tv_sec: TIMEOUT.as_secs() as _, tv_usec: 0 };
    set_option(&descriptor, libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
    set_option(&descriptor, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &timeout)?;
    // Only for better words: a kernel without them (before 4.12) works as well.
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        let _ = set_option(&descriptor, libc::SOL_NETLINK, option, &1_i32);
    }
    // The kernel gives an address at the first send.
    Ok(Socket { descriptor, sequence: 0, buffer: vec![0; BUFFER] })
}

fn set_option<T>(descriptor: &OwnedFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `value`.
    let result =
        unsafe { libc::setsockopt(descriptor.as_raw_fd(), level, option, std::ptr::from_ref(value).cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    use super::super::attribute::Writer;
    use super::*;

    fn raw(kind: i32, flags: i32, body: &[u8]) -> Vec<u8> {
        let mut bytes = framed(Request { kind: kind as u16, flags: 0, body }, 7);
        bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        bytes
    }

    fn end_of(bytes: &[u8]) -> Result<Option<End>, Malformed> {
        ending(&messages(bytes).next().unwrap().unwrap())
    }

    #[test]
    fn a_request_is_in_the_hosts_byte_order() {
        let bytes = framed(Request { kind: 36, flags: libc::NLM_F_CREATE, body: &[1, 2, 3, 4] }, 0x0102_0304);
        assert_eq!(bytes[0..4], 20_u32.to_ne_bytes());
        assert_eq!(bytes[4..6], 36_u16.to_ne_bytes());
        assert_eq!(bytes[6..8], 0x405_u16.to_ne_bytes());
        assert_eq!(bytes[8..12], 0x0102_0304_u32.to_ne_bytes());
        assert_eq!(bytes[16..], [1, 2, 3, 4]);
    }

    #[test]
    fn several_messages_of_a_datagram_and_a_cut_one() {
        let mut bytes = [raw(36, 2, &[0; 5]), vec![0; 3], raw(3, 2, &[0; 4])].concat();
        let kinds: Vec<_> = messages(&bytes).map(|message| message.unwrap().kind).collect();
        assert_eq!(kinds, [36, 3]);
        bytes.pop();
        let last = messages(&bytes).last().unwrap();
        assert!(last.is_err());
    }

    #[test]
    fn a_zero_error_is_an_acknowledgement_and_others_bring_the_kernels_words() {
        assert!(matches!(end_of(&raw(libc::NLMSG_ERROR, 0, &[0; 20])), Ok(Some(End::Done))));
        let refusal = [&(-libc::ENOENT).to_ne_bytes()[..], &[0; HEADER][..]].concat();
        let refusal = Writer::after(&refusal).text(1, "Specified qdisc kind is unknown").finish();
        let Ok(Some(End::Refused(Cause::Kernel { errno, said }))) =
            end_of(&raw(libc::NLMSG_ERROR, libc::NLM_F_CAPPED | libc::NLM_F_ACK_TLVS, &refusal))
        else {
            panic!("no refusal");
        };
        assert_eq!((errno, said.as_deref()), (libc::ENOENT, Some("Specified qdisc kind is unknown")));
    }

    #[test]
    fn a_dump_can_end_in_an_error() {
        assert!(matches!(end_of(&raw(libc::NLMSG_DONE, 2, &[])), Ok(Some(End::Done))));
        let interrupted = (-libc::EINTR).to_ne_bytes();
        assert!(matches!(end_of(&raw(libc::NLMSG_DONE, 2, &interrupted)), Ok(Some(End::Interrupted))));
        let denied = (-libc::EMSGSIZE).to_ne_bytes();
        assert!(matches!(end_of(&raw(libc::NLMSG_DONE, 2, &denied)), Ok(Some(End::Refused(_)))));
        assert!(end_of(&raw(libc::NLMSG_ERROR, 0, &[])).is_err());
        assert!(matches!(end_of(&raw(36, 2, &[])), Ok(None)));
    }

    #[test]
    fn no_permission_is_told_as_such() {
        let cause = Cause::Kernel { errno: libc::EPERM, said: None };
        let error = LineError::from(Error { operation: "set CAKE on eth0".into(), cause });
        assert!(matches!(&error, LineError::Refused { fix, .. } if fix.contains("root")), "{error}");
    }
}
