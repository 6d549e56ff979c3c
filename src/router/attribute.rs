//! Netlink attributes: type, length, value, padded to four bytes, numbers in the host's byte order
//! (`include/uapi/linux/netlink.h`).

use std::ffi::CStr;

/// Why bytes from the kernel make no sense. Never skipped over: a list that silently gets shorter looks
/// like a router on which something is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed answer: {0}")]
pub struct Malformed(pub &'static str);

const HEADER: usize = 4;
/// The two upper bits say "nested" and "network byte order"; the kernel sets them or not as it likes.
const TYPE_MASK: u16 = 0x3fff;

/// Rounds up to netlink's alignment.
pub const fn aligned(length: usize) -> usize {
    (length + 3) & !3
}

/// One attribute, borrowed from a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    pub kind: u16,
    pub payload: &'a [u8],
}

/// Reads attributes one after the other; a bad length is an error and ends the walk.
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let (Ok(length), Ok(kind)) = (u16_at(bytes, 0), u16_at(bytes, 2)) else {
            return Some(Err(Malformed("an attribute's header is cut off")));
        };
        let Some(payload) = bytes.get(HEADER..usize::from(length)) else {
            return Some(Err(Malformed("an attribute's length leads outside of its message")));
        };
        self.rest = bytes.get(aligned(usize::from(length))..).unwrap_or(&[]);
        Some(Ok(Attribute { kind: kind & TYPE_MASK, payload }))
    }
}

impl<'a> Attribute<'a> {
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.payload.first().copied().ok_or(Malformed("an empty attribute where a number belongs"))
    }

    pub fn u32(&self) -> Result<u32, Malformed> {
        u32_at(self.payload, 0)
    }

    pub fn i32(&self) -> Result<i32, Malformed> {
        u32_at(self.payload, 0).map(u32::cast_signed)
    }

    pub fn u64(&self) -> Result<u64, Malformed> {
        u64_at(self.payload, 0)
    }

    /// A zero-terminated string; names that are no UTF-8 are shown with replacement characters.
    pub fn text(&self) -> Result<String, Malformed> {
        let text = CStr::from_bytes_until_nul(self.payload).map_err(|_| Malformed("a name without its end"))?;
        Ok(text.to_string_lossy().into_owned())
    }

    pub fn nested(&self) -> Attributes<'a> {
        attributes(self.payload)
    }
}

fn array_at<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Malformed> {
    let field = bytes.get(offset..).and_then(<[u8]>::first_chunk::<N>);
    field.copied().ok_or(Malformed("a number is cut off"))
}

pub fn u16_at(bytes: &[u8], offset: usize) -> Result<u16, Malformed> {
    array_at(bytes, offset).map(u16::from_ne_bytes)
}

pub fn u32_at(bytes: &[u8], offset: usize) -> Result<u32, Malformed> {
    array_at(bytes, offset).map(u32::from_ne_bytes)
}

pub fn u64_at(bytes: &[u8], offset: usize) -> Result<u64, Malformed> {
    array_at(bytes, offset).map(u64::from_ne_bytes)
}

/// Builds what follows a netlink header: a fixed structure, then attributes.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// Starts with the structure that the message type wants in front of its attributes.
    pub fn after(structure: &[u8]) -> Self {
        let mut writer = Self { bytes: structure.to_vec() };
        writer.pad();
        writer
    }

    pub fn bytes(mut self, kind: u16, payload: &[u8]) -> Self {
        self.header(kind, payload.len());
        self.bytes.extend_from_slice(payload);
        self.pad();
        self
    }

    pub fn u8(self, kind: u16, value: u8) -> Self {
        self.bytes(kind, &[value])
    }

    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn i32(self, kind: u16, value: i32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn u64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), b"\0"].concat())
    }

    pub fn nest(self, kind: u16, inner: Self) -> Self {
        self.bytes(kind, &inner.finish())
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }

    fn header(&mut self, kind: u16, payload: usize) {
        // What does not fit into 64 KiB gets a length that the kernel refuses, not one that it misreads.
        let length = u16::try_from(HEADER + payload).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
    }

    fn pad(&mut self) {
        self.bytes.resize(aligned(self.bytes.len()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let bytes = Writer::default()
            .text(1, "cake")
            .nest(2, Writer::default().u64(2, 2_137_500).i32(6, -64).u8(7, 9))
            .u32(3, 0xdead_beef)
            .finish();
        let read: Vec<_> = attributes(&bytes).map(Result::unwrap).collect();
        assert_eq!(read.iter().map(|a| a.kind).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(read[0].text().unwrap(), "cake");
        let inner: Vec<_> = read[1].nested().map(Result::unwrap).collect();
        assert_eq!(inner[0].u64(), Ok(2_137_500));
        assert_eq!(inner[1].i32(), Ok(-64));
        assert_eq!(inner[2].u8(), Ok(9));
        assert_eq!(read[2].u32(), Ok(0xdead_beef));
    }

    #[test]
    fn numbers_are_in_the_hosts_order_and_values_are_padded() {
        let bytes = Writer::default().u8(0x0102, 0xff).finish();
        let expected = [&5_u16.to_ne_bytes()[..], &0x0102_u16.to_ne_bytes()[..], &[0xff, 0, 0, 0][..]].concat();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn the_last_attribute_may_lack_its_padding_and_flags_are_no_part_of_the_type() {
        let mut bytes = Writer::default().u8(0x8000 | 7, 1).finish();
        bytes.truncate(5);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [Ok(Attribute { kind: 7, payload: &[1] })]);
    }

    #[test]
    fn a_length_that_lies_is_an_error_and_ends_the_walk() {
        for length in [0_u16, 3, 9, u16::MAX] {
            let bytes = [&length.to_ne_bytes()[..], &1_u16.to_ne_bytes()[..], &[0; 4][..]].concat();
            let read: Vec<_> = attributes(&bytes).collect();
            assert_eq!(read.len(), 1, "length {length}");
            assert!(read[0].is_err(), "length {length}");
        }
        assert!(attributes(&[1, 2, 3]).next().unwrap().is_err());
        assert!(Attribute { kind: 1, payload: &[1, 2, 3] }.u32().is_err());
        assert!(Attribute { kind: 1, payload: b"eth0" }.text().is_err());
    }
}
