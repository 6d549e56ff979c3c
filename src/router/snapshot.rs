//! All that is set on the router's devices at one moment: qdiscs with their counters, and where incoming packets are led.

use super::device::{self, Device};
use super::netlink::{Error, Socket};
use super::qdisc::{self, Qdisc};
use super::redirect;

#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub devices: Vec<Device>,
    pub qdiscs: Vec<Qdisc>,
    /// For each device with an ingress qdisc, the devices that its filters lead to.
    pub redirects: Vec<(i32, Vec<i32>)>,
}

impl Snapshot {
    pub fn take(socket: &mut Socket) -> Result<Self, Error> {
        let (devices, qdiscs) = (device::all(socket)?, qdisc::all(socket)?);
        let mut redirects = Vec::new();
        for ingress in qdiscs.iter().filter(|qdisc| redirect::is_ingress(qdisc)) {
            redirects.push((ingress.device, redirect::targets(socket, ingress.device, ingress)?));
        }
        Ok(Self { devices, qdiscs, redirects })
    }

    /// A device that came or went meanwhile has no name.
    pub fn name(&self, index: i32) -> Option<&str> {
        self.devices.iter().find(|device| device.index == index).map(|device| device.name.as_str())
    }
}
