//! Owns the root qdisc of one device for the time of a run, and puts back what was there.

use super::cake::{self, Options};
use super::device::{self, Device};
use super::journal::{Change, Journal};
use super::netlink::Socket;
use super::qdisc::{self, Qdisc};
use super::root::{self, Before, Done, OURS, Outcome};
use crate::line::{Cake, LineError, Shaping};
use crate::units::Direction;
use std::net::IpAddr;
use std::sync::Arc;

/// Sets CAKE on a device or takes all shaping off it. Dropped, it puts back what was there.
pub struct Shaper {
    socket: Socket,
    device: Device,
    direction: Direction,
    journal: Arc<Journal>,
    before: Before,
    state: State,
    /// Where the line's connections come from: another address is another connection to the provider.
    addresses: Vec<IpAddr>,
}

enum State {
    Untouched,
    Unshaped,
    Shaped(Options),
}

impl Shaper {
    /// Looks at what is there; changes nothing.
    ///
    /// # Errors
    /// [`LineError::Refused`]: no such device, no CAKE in the kernel, no privileges, or something at the root that we
    /// could not put back exactly.
    pub fn open(device: &str, direction: Direction, journal: &Arc<Journal>) -> Result<Self, LineError> {
        let mut socket = Socket::open()?;
        let device = device::by_name(&mut socket, device)?;
        require_cake(&mut socket)?;
        let root = qdisc::root(&mut socket, device.index)?;
        let before = Before::of(root.as_ref(), &device.name)?;
        if let Before::Set { handle, .. } = before
            && qdisc::has_filters(&mut socket, device.index, qdisc::Handle(handle))?
        {
            let problem = format!("{} has filters at its {before}, which we could not put back", device.name);
            return Err(LineError::refused(problem, "Take them away (tc filter del) and try again"));
        }
        let addresses = device::public_addresses(&mut socket, device.index)?;
        let journal = Arc::clone(journal);
        Ok(Self { socket, device, direction, journal, before, state: State::Untouched, addresses })
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What was there when we came: `noqueue (the kernel's default)`, `cake 8001:`.
    pub fn before(&self) -> &Before {
        &self.before
    }

    /// Sets this CAKE, takes all shaping off (anybody else's too), or puts back what was there. Reads back what came of it.
    ///
    /// From one CAKE to the next the queue stays: nobody's packets are lost.
    ///
    /// # Errors
    /// [`LineError::Disturbed`] if somebody else changed the root meanwhile: theirs stays.
    pub fn shape(&mut self, shaping: Shaping) -> Result<(), LineError> {
        self.undisturbed()?;
        match shaping {
            Shaping::AsIs => self.put_back(),
            Shaping::Unshaped => self.unshape(),
            Shaping::Cake(cake) => self.set(&cake),
        }
    }

    /// Whether the root is still as we left it (or found it), and the device has the addresses that it had.
    ///
    /// # Errors
    /// [`LineError::Disturbed`] with what is there instead. Of an address that went this is told once.
    pub fn undisturbed(&mut self) -> Result<(), LineError> {
        self.root_is_undisturbed()?;
        let now = device::public_addresses(&mut self.socket, self.device.index)?;
        let before = std::mem::replace(&mut self.addresses, now);
        match before.into_iter().find(|address| !self.addresses.contains(address)) {
            Some(gone) => {
                Err(LineError::Disturbed { what: format!("the address of {} (was {gone})", self.device.name) })
            }
            None => Ok(()),
        }
    }

    fn root_is_undisturbed(&mut self) -> Result<(), LineError> {
        let name = &self.device.name;
        let disturbed = |what: String| Err(LineError::Disturbed { what });
        if device::by_index(&mut self.socket, self.device.index)?.is_none() {
            return disturbed(format!("the device {name} (it is gone)"));
        }
        let root = qdisc::root(&mut self.socket, self.device.index)?;
        let fine = match &self.state {
            State::Untouched => self.before.is(root.as_ref()),
            State::Unshaped => root::is_default(root.as_ref()),
            State::Shaped(wanted) => return self.compare(root.as_ref(), wanted).map_or(Ok(()), disturbed),
        };
        if fine { Ok(()) } else { disturbed(format!("the root qdisc of {name} (now {})", described(root.as_ref()))) }
    }

    /// Puts back what was there before. Does nothing the second time; afterwards [`Shaper::shape`] begins anew.
    pub fn put_back(&mut self) -> Result<(), LineError> {
        let done = match self.state {
            State::Untouched => return Ok(()),
            State::Unshaped => Done::Unshaped,
            State::Shaped(_) => Done::Shaped,
        };
        let name = &self.device.name;
        let outcome = root::put_back(&mut self.socket, name, self.device.index, &self.before, done)?;
        if matches!(outcome, Outcome::SomebodyElses | Outcome::DeviceGone) {
            log::warn!("{name}: {}", outcome.said(&self.before));
        }
        self.state = State::Untouched;
        self.journal.remove(name, &self.change(done))
    }

    fn change(&self, done: Done) -> Change {
        Change::Root { before: self.before.clone(), done }
    }

    fn set(&mut self, cake: &Cake) -> Result<(), LineError> {
        let Device { name, index, .. } = &self.device;
        let operation = || format!("set CAKE on {name}");
        cake::check(cake).map_err(|why| LineError::failed(operation(), why))?;
        let options = cake::encode(cake, self.direction);
        let wanted = cake::decode(&options).map_err(|error| LineError::failed(operation(), error))?;
        // The record fits at each moment: while nothing is there it says that we took it away (ours is known by its
        // handle in any case), and that we shape only once that is so.
        let taken_away = matches!(self.state, State::Unshaped);
        if !taken_away {
            self.journal.write(name, *index, &self.change(Done::Shaped))?;
        }
        if matches!(self.state, State::Shaped(_)) {
            qdisc::change_root(&mut self.socket, name, *index, cake::KIND, OURS, &options)?;
        } else {
            qdisc::replace_root(&mut self.socket, name, *index, cake::KIND, OURS, &options)?;
        }
        if taken_away {
            self.journal.write(name, *index, &self.change(Done::Shaped))?;
        }
        self.state = State::Shaped(wanted);
        let root = qdisc::root(&mut self.socket, *index)?;
        self.compare(root.as_ref(), &wanted).map_or(Ok(()), |why| Err(LineError::failed(operation(), why)))
    }

    fn unshape(&mut self) -> Result<(), LineError> {
        let Device { name, index, .. } = &self.device;
        self.journal.write(name, *index, &self.change(Done::Unshaped))?;
        let root = qdisc::root(&mut self.socket, *index)?;
        if let Some(root) = root.filter(|root| !root::is_default(Some(root))) {
            qdisc::delete_root(&mut self.socket, name, *index, root.handle)?;
        }
        self.state = State::Unshaped;
        let root = qdisc::root(&mut self.socket, *index)?;
        if root::is_default(root.as_ref()) {
            return Ok(());
        }
        Err(LineError::failed(format!("take the shaper off {name}"), format!("it has {}", described(root.as_ref()))))
    }

    /// What the root has otherwise than it should.
    fn compare(&self, root: Option<&Qdisc>, wanted: &Options) -> Option<String> {
        let whose = format!("the root qdisc of {}", self.device.name);
        let Some(root) = root.filter(|root| root.kind == cake::KIND && root.handle == OURS) else {
            return Some(format!("{whose} (now {}, not {} {OURS})", described(root), cake::KIND));
        };
        match cake::decode(&root.options) {
            Ok(is) => {
                let differences = is.differences(wanted);
                (!differences.is_empty()).then(|| format!("{whose} ({})", differences.join(", ")))
            }
            Err(error) => Some(format!("{whose} ({error})")),
        }
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        if let Err(error) = self.put_back() {
            log::error!("{error}");
        }
    }
}

fn described(root: Option<&Qdisc>) -> String {
    root.map_or_else(|| "none".into(), Qdisc::to_string)
}

fn require_cake(socket: &mut Socket) -> Result<(), LineError> {
    let Err(error) = qdisc::ask_in_vain(socket, cake::KIND, OURS) else {
        log::warn!("the kernel took a CAKE that it should not have taken");
        return Ok(qdisc::delete_root(socket, "lo", qdisc::LOOPBACK, OURS)?);
    };
    match error.errno() {
        Some(libc::EINVAL) => Ok(()),
        Some(libc::ENOENT) => Err(LineError::refused(
            "this kernel has no CAKE",
            "Install it (opkg install kmod-sched-cake, or on OpenWrt with apk: apk add kmod-sched-cake)",
        )),
        _ => Err(error.into()),
    }
}
