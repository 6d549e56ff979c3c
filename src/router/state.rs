//! What shapes a device right now, whoever set it. Changes nothing and needs no journal.

use super::cake;
use super::device;
use super::netlink::Socket;
use super::qdisc::{self, Qdisc};
use super::redirect;
use crate::line::LineError;

#[derive(Clone, Debug, Default)]
pub struct State {
    /// `None`: there is no such device.
    pub root: Option<Root>,
    pub ingress: Ingress,
}

/// A root qdisc.
#[derive(Clone, Debug)]
pub struct Root {
    pub kind: String,
    pub packets: u64,
    pub cake: Option<cake::Options>,
}

#[derive(Clone, Debug, Default)]
pub enum Ingress {
    #[default]
    Direct,
    Through {
        device: String,
        root: Option<Root>,
    },
    Unclear(String),
}

pub fn read(name: &str) -> Result<State, LineError> {
    let mut socket = Socket::open()?;
    let Some(device) = device::all(&mut socket)?.into_iter().find(|device| device.name == name) else {
        return Ok(State::default());
    };
    let root = qdisc::root(&mut socket, device.index)?.map(|root| Root::of(&root)).transpose()?;
    let ingress = match redirect::existing(&mut socket, &device) {
        Ok(None) => Ingress::Direct,
        Ok(Some(through)) => {
            let root = qdisc::root(&mut socket, through.index)?.map(|root| Root::of(&root)).transpose()?;
            Ingress::Through { device: through.name, root }
        }
        Err(LineError::Refused { problem, .. }) => Ingress::Unclear(problem),
        Err(error) => return Err(error),
    };
    // A device that was never up may show no root.
    let root = root.or_else(|| Some(Root { kind: "noop".into(), packets: 0, cake: None }));
    Ok(State { root, ingress })
}

impl Root {
    fn of(root: &Qdisc) -> Result<Self, LineError> {
        let cake = cake::is_cake(&root.kind).then(|| cake::decode(&root.options)).transpose();
        let cake = cake.map_err(|error| LineError::failed(format!("read the options of {root}"), error))?;
        Ok(Self { kind: root.kind.clone(), packets: root.counted.sent_packets, cake })
    }
}
