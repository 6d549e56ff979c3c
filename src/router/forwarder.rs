//! A load that is forwarded: it comes from a host of our own in the home network, as a client's does.
//!
//! TCP on the router itself feels its own queue push back (a full queue is told to the sender at once, without a loss)
//! and does not behave like a client of the LAN, whose packets have left its hands. So where that matters, sockets are
//! made in a network namespace that joins the LAN's bridge like a machine with a cable, gets an address there, and has
//! the router as its way to the internet: through its firewall, its address translation and its queue.
//!
//! Everything goes with our process, however it ends; what is made is in the journal before.

mod host;
mod lan;
mod namespace;
mod neighbours;

pub use namespace::Namespace;

use super::device::Device;
use super::journal::{Change, Journal};
use super::netlink::Socket;
use super::socket::Via;
use crate::line::LineError;
use lan::{Lan, Place};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// A host behind the router. Dropped, it is taken away again.
pub struct Forwarder {
    /// Of the router, not of our host.
    socket: Socket,
    wan: Device,
    lan: Lan,
    places: Vec<Place>,
    space: Namespace,
    /// Where connections from there have come through.
    proven: Vec<SocketAddr>,
    journal: Arc<Journal>,
    stands: bool,
}

impl Forwarder {
    /// Joins the LAN behind this line. Takes some three seconds, in which it looks for a free address.
    ///
    /// # Errors
    /// [`LineError::Refused`] where it is not possible: no LAN bridge, no free address, a kernel without namespaces or
    /// veth, no privileges. Nothing is left then.
    pub fn open(wan: &Device, journal: &Arc<Journal>) -> Result<Self, LineError> {
        let mut socket = Socket::open()?;
        let space = Namespace::new()?;
        let lan = lan::find(&mut socket, wan)?;
        let random = RandomState::new().build_hasher().finish();
        let mut places = vec![lan.room(&mut socket)?];
        places.extend(lan.room_v6(random));
        let (wan, journal) = (wan.clone(), Arc::clone(journal));
        let mut forwarder = Self { socket, wan, lan, places, space, proven: Vec::new(), journal, stands: false };
        let Device { name, index, .. } = &forwarder.lan.device;
        forwarder.journal.write(name, *index, &forwarder.change())?;
        // From here on `Drop` undoes as much as there is.
        forwarder.stands = true;
        host::join(&mut forwarder.socket, &forwarder.space, &forwarder.lan, random)?;
        host::furnish(&forwarder.space, &forwarder.places)?;
        Ok(forwarder)
    }

    /// The way out of sockets that are our host's.
    pub fn via(&self) -> Via {
        Via { space: Some(self.space.clone()), ..Via::default() }
    }

    /// Our host's IPv4 address.
    pub fn address(&self) -> Ipv4Addr {
        let v4 = |place: &Place| match place.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        self.places.iter().find_map(v4).unwrap_or(Ipv4Addr::UNSPECIFIED)
    }

    /// Makes sure, once, that a connection from our host to there comes about, and by the line that is tuned.
    ///
    /// # Errors
    /// [`LineError::Refused`] if the router leads it elsewhere or the firewall does not let it pass.
    pub async fn reach(&mut self, to: SocketAddr) -> Result<(), LineError> {
        if self.proven.contains(&to) {
            return Ok(());
        }
        let Some(place) = self.places.iter().find(|place| place.address.is_ipv4() == to.is_ipv4()) else {
            let problem = format!("the LAN has no IPv6 network from which to reach {}", to.ip());
            return Err(LineError::refused(problem, "Name a server with an IPv4 address"));
        };
        let leaves_by = host::way_out(&mut self.socket, &self.lan, place.address, to.ip())?;
        if leaves_by != Some(self.wan.index) {
            let problem = format!("the router does not lead {} out by {}", self.lan.device.name, self.wan.name);
            return Err(LineError::refused(problem, "Name the device that LAN hosts go out by with --device"));
        }
        match self.via().connect(to, None).await {
            Ok(_) => {
                self.proven.push(to);
                Ok(())
            }
            Err(error) => {
                let problem = format!("{to} cannot be reached from {} in the LAN ({error})", place.address);
                Err(LineError::refused(problem, "Look what the firewall does with new hosts of the LAN"))
            }
        }
    }

    /// Whether our host is still in the LAN.
    pub fn undisturbed(&mut self) -> Result<(), LineError> {
        if !self.stands || host::is_joined(&mut self.socket, self.lan.bridge)? {
            return Ok(());
        }
        Err(LineError::Disturbed { what: format!("our host's place in {}", self.lan.device.name) })
    }

    /// Takes our host away.
    pub fn put_back(&mut self) -> Result<(), LineError> {
        if std::mem::take(&mut self.stands) {
            let (index, address) = (self.lan.device.index, self.address());
            put_back(&mut self.socket, index, address).inspect_err(|_| self.stands = true)?;
            self.journal.remove(&self.lan.device.name, &self.change())?;
        }
        Ok(())
    }

    fn change(&self) -> Change {
        Change::Host { address: self.address() }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            log::error!("{error}");
        }
    }
}

/// Takes away what [`Forwarder::open`] made, whole or in part, and says what it found.
pub fn put_back(socket: &mut Socket, lan: i32, address: Ipv4Addr) -> Result<&'static str, LineError> {
    let found = host::remove(socket)?;
    neighbours::forget(socket, lan, address)?;
    Ok(if found { "took our host out of the LAN" } else { "our host was gone already" })
}
