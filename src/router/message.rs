//! Netlink's messages: a header of 16 bytes, then what it is about (include/uapi/linux/netlink.h).

use super::attribute::{Malformed, aligned, attributes, u16_at, u32_at};

const HEADER: usize = 16;

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
    pub sequence: u32,
    pub body: &'a [u8],
}

impl Message<'_> {
    /// The kernel says that the list it is from has changed since its beginning.
    pub fn is_interrupted(&self) -> bool {
        self.flags & libc::NLM_F_DUMP_INTR as u16 != 0
    }
}

#[cfg(test)]
impl<'a> Message<'a> {
    /// As if it had come from the kernel.
    pub fn new(kind: u16, body: &'a [u8]) -> Self {
        Self { kind, flags: 0, sequence: 0, body }
    }
}

/// How an answer ends.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// It was a dump of something that changed meanwhile.
    Interrupted,
    /// The kernel's number, and its words where it has any.
    Refused {
        errno: i32,
        said: Option<String>,
    },
}

/// Whether this message ends the answer, and how. Pure: all of the protocol's odd corners are here.
pub fn ending(message: &Message) -> Result<Option<End>, Malformed> {
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
        _ => End::Refused { errno, said },
    }))
}

/// `NLMSGERR_ATTR_MSG`: the kernel's own words. Their absence or damage is no reason to lose the number.
fn extended_words(bytes: &[u8]) -> Option<String> {
    attributes(bytes).flatten().find(|attribute| attribute.kind == 1)?.text().ok()
}

/// A request's bytes.
pub fn framed(request: Request, sequence: u32) -> Vec<u8> {
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
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
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
        let Ok(Some(End::Refused { errno, said })) =
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
        assert!(matches!(end_of(&raw(libc::NLMSG_DONE, 2, &denied)), Ok(Some(End::Refused { .. }))));
        assert!(end_of(&raw(libc::NLMSG_ERROR, 0, &[])).is_err());
        assert!(matches!(end_of(&raw(36, 2, &[])), Ok(None)));
    }
}
