//! ICMP echo as bytes. Pure.

use std::net::IpAddr;

/// Tells our probes from everybody else's, and late ones of an earlier prober from ours.
pub type Cookie = [u8; 8];

/// Which internet protocol carries the echo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

/// Header, cookie, number, and padding up to what an ordinary small packet weighs.
pub const ECHO_BYTES: usize = 40;
const HEADER: usize = 8;

impl Family {
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    /// What is around an echo in its packet.
    pub fn ip_header(self) -> usize {
        if self == Self::V4 { 20 } else { 40 }
    }

    /// RFC 792 and RFC 4443.
    fn request_type(self) -> u8 {
        if self == Self::V4 { 8 } else { 128 }
    }

    fn reply_type(self) -> u8 {
        if self == Self::V4 { 0 } else { 129 }
    }
}

/// An echo request of so many bytes, at least [`ECHO_BYTES`]. The kernel fills in ICMPv6's checksum, which needs the
/// addresses; ICMP's is ours.
pub fn request(family: Family, id: u16, number: u32, cookie: Cookie, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length.max(ECHO_BYTES)];
    bytes[0] = family.request_type();
    bytes[4..6].copy_from_slice(&id.to_be_bytes());
    bytes[6..8].copy_from_slice(&(number as u16).to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie);
    bytes[16..20].copy_from_slice(&number.to_be_bytes());
    if family == Family::V4 {
        let sum = checksum(&bytes);
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    bytes
}

/// The number of the probe that this packet answers; `None` for anything that is not an answer to one of ours.
/// `id` is `None` where the kernel chose it (ping sockets, which see only their own replies).
pub fn reply(family: Family, packet: &[u8], id: Option<u16>, cookie: Cookie) -> Option<u32> {
    let header = packet.get(..HEADER)?;
    let sequence = u16::from_be_bytes([header[6], header[7]]);
    let same_id = id.is_none_or(|id| header[4..6] == id.to_be_bytes());
    if header[0] != family.reply_type() || header[1] != 0 || !same_id || packet.get(8..16)? != cookie {
        return None;
    }
    let number = u32::from_be_bytes(packet.get(16..20)?.try_into().ok()?);
    (number as u16 == sequence).then_some(number)
}

/// What follows the IPv4 header that a raw socket delivers with each packet.
pub fn after_ipv4_header(packet: &[u8]) -> Option<&[u8]> {
    let first = *packet.first()?;
    let length = usize::from(first & 0x0f) * 4;
    (first >> 4 == 4 && length >= 20).then(|| packet.get(length..)).flatten()
}

/// RFC 1071.
fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOKIE: Cookie = *b"\x01\x02\x03\x04\x05\x06\x07\x08";

    fn answer(family: Family, number: u32) -> Vec<u8> {
        let mut bytes = request(family, 0x1234, number, COOKIE, ECHO_BYTES);
        bytes[0] = family.reply_type();
        bytes
    }

    #[test]
    fn a_request_has_the_bytes_of_rfc_792() {
        let bytes = request(Family::V4, 0x1234, 0x0001_0005, COOKIE, ECHO_BYTES);
        assert_eq!(bytes[..2], [8, 0]);
        assert_eq!(bytes[4..20], [0x12, 0x34, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 0, 5]);
        assert_eq!(checksum(&bytes), 0, "a packet with its checksum sums to zero");
        assert_eq!(checksum(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]), 0x220d, "the example of RFC 1071");
        assert_eq!(request(Family::V6, 1, 1, COOKIE, 1452)[..4], [128, 0, 0, 0]);
    }

    #[test]
    fn only_an_answer_to_one_of_ours_counts() {
        for family in [Family::V4, Family::V6] {
            let good = answer(family, 70_000);
            assert_eq!(reply(family, &good, Some(0x1234), COOKIE), Some(70_000));
            assert_eq!(reply(family, &good, None, COOKIE), Some(70_000));
            assert_eq!(reply(family, &good, Some(0x1235), COOKIE), None, "another program's");
            assert_eq!(reply(family, &good, None, [0; 8]), None, "an earlier prober's");
            assert_eq!(reply(family, &request(family, 0x1234, 1, COOKIE, 0), None, COOKIE), None, "our own request");
            assert_eq!(reply(family, &good[..19], None, COOKIE), None, "cut short");
            let mut garbled = good.clone();
            garbled[7] ^= 1;
            assert_eq!(reply(family, &garbled, None, COOKIE), None, "sequence and number disagree");
        }
    }

    #[test]
    fn the_ipv4_header_may_have_options() {
        let mut packet = vec![0x46; 24];
        packet.push(7);
        assert_eq!(after_ipv4_header(&packet), Some(&[7][..]));
        assert_eq!(after_ipv4_header(&[0x44; 40]), None, "a header has at least 20 bytes");
        assert_eq!(after_ipv4_header(&[0x45; 10]), None);
        assert_eq!(after_ipv4_header(&[]), None);
    }
}
