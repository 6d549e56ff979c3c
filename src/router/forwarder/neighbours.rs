//! Who is on a network: the kernel's neighbour table, and what it learns when it is made to ask.

use crate::line::LineError;
use crate::router::attribute::{Malformed, Writer, attributes, u16_at, u32_at};
use crate::router::message::{Message, Request};
use crate::router::netlink::{Error, Socket};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// The kernel asks three times, one second apart (`mcast_solicit`, `retrans_time_ms`); a router may be set otherwise.
const PATIENCE: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(100);

// linux/neighbour.h.
const HEADER: usize = 12;
const NDA_DST: u16 = 1;
const NTF_USE: u8 = 1;
const NUD_INCOMPLETE: u16 = 0x01;
const NUD_FAILED: u16 = 0x20;

/// The first of these addresses that nobody answers for. The kernel asks for all of them at once.
pub fn unused(socket: &mut Socket, device: i32, candidates: &[Ipv4Addr]) -> Result<Option<Ipv4Addr>, LineError> {
    let known = table(socket, device)?;
    // A run that was killed may have left its questions behind.
    let unanswered = |state| state == NUD_FAILED || state == NUD_INCOMPLETE;
    let unknown = |address: &&Ipv4Addr| state(&known, **address).is_none_or(unanswered);
    let asked: Vec<Ipv4Addr> = candidates.iter().filter(unknown).copied().collect();
    for address in &asked {
        ask(socket, device, *address)?;
    }
    let began = Instant::now();
    let found = loop {
        let known = table(socket, device)?;
        let pending = asked.iter().any(|address| state(&known, *address) == Some(NUD_INCOMPLETE));
        if !pending || began.elapsed() > PATIENCE {
            break asked.iter().find(|address| state(&known, **address) == Some(NUD_FAILED)).copied();
        }
        std::thread::sleep(LOOK_EVERY);
    };
    // None of them was known before.
    for address in asked {
        forget(socket, device, address)?;
    }
    Ok(found)
}

/// Takes an address out of the table, if it is there.
pub fn forget(socket: &mut Socket, device: i32, address: Ipv4Addr) -> Result<(), Error> {
    let body = entry(device, address, 0);
    let request = Request { kind: libc::RTM_DELNEIGH, flags: 0, body: &body };
    match socket.command(|| format!("forget the neighbour {address}"), request) {
        Err(error) if !matches!(error.errno(), Some(libc::ENOENT | libc::ENODEV | libc::ENXIO)) => Err(error),
        _ => Ok(()),
    }
}

/// Lets the kernel find out who has it (`neigh_event_send`).
fn ask(socket: &mut Socket, device: i32, address: Ipv4Addr) -> Result<(), Error> {
    let body = entry(device, address, NTF_USE);
    let request = Request { kind: libc::RTM_NEWNEIGH, flags: libc::NLM_F_CREATE, body: &body };
    socket.command(|| format!("ask who has {address}"), request)
}

/// `struct ndmsg` and the address.
fn entry(device: i32, address: Ipv4Addr, flags: u8) -> Vec<u8> {
    let mut header = [0; HEADER];
    header[0] = libc::AF_INET as u8;
    header[4..8].copy_from_slice(&device.to_ne_bytes());
    header[10] = flags;
    Writer::after(&header).bytes(NDA_DST, &address.octets()).finish()
}

fn state(known: &[(Ipv4Addr, u16)], address: Ipv4Addr) -> Option<u16> {
    known.iter().find(|(known, _)| *known == address).map(|(_, state)| *state)
}

fn table(socket: &mut Socket, device: i32) -> Result<Vec<(Ipv4Addr, u16)>, Error> {
    let mut body = [0; HEADER];
    body[0] = libc::AF_INET as u8;
    let request = Request { kind: libc::RTM_GETNEIGH, flags: libc::NLM_F_DUMP, body: &body };
    socket.query(|| "read the neighbours".into(), request, |message| neighbour(&message, device))
}

/// Address and state of an IPv4 neighbour on the device.
fn neighbour(message: &Message, device: i32) -> Result<Option<(Ipv4Addr, u16)>, Malformed> {
    let body = message.body;
    if message.kind != libc::RTM_NEWNEIGH || u32_at(body, 4)?.cast_signed() != device {
        return Ok(None);
    }
    let state = u16_at(body, 8)?;
    for attribute in attributes(body.get(HEADER..).unwrap_or(&[])) {
        let attribute = attribute?;
        if attribute.kind == NDA_DST
            && let Ok(address) = <[u8; 4]>::try_from(attribute.payload)
        {
            return Ok(Some((address.into(), state)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_is_written() {
        let address = Ipv4Addr::new(192, 168, 1, 254);
        let mut body = entry(7, address, NTF_USE);
        body[8..10].copy_from_slice(&NUD_FAILED.to_ne_bytes());
        assert_eq!(body[10], 1);
        let read = |body: &[u8], device| neighbour(&Message::new(libc::RTM_NEWNEIGH, body), device);
        assert_eq!(read(&body, 7), Ok(Some((address, NUD_FAILED))));
        assert_eq!(read(&body, 8), Ok(None));
        assert_eq!(neighbour(&Message::new(libc::RTM_DELNEIGH, &body), 7), Ok(None));
        for length in 0..body.len() {
            let _ = read(&body[..length], 7);
        }
    }
}
