//! `serve`: says where it listens and how to use it, and serves until it is told to stop.

use super::exit::Exit;
use super::{complain, print, signals};
use crate::server::{Bound, Limits};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How soon a signal is heeded.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub fn serve(listen: SocketAddr) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("cannot start the runtime: {error}"));
            return Exit::Failed;
        }
    };
    signals::catch();
    let totals = runtime.block_on(async {
        let bound = Bound::to(listen, Limits::default()).await?;
        let address = bound.address()?;
        print(&format!(
            "Listening on {address}, plain HTTP. On the router:\n  sqm-autotune calibrate --server http://{} --reflector {}\n\
             Ctrl-C stops it.\n",
            reached_as(address),
            reached_as(address).ip(),
        ));
        Ok::<_, std::io::Error>(bound.run(stopped()).await)
    });
    match totals {
        Ok(totals) => {
            complain(&format!(
                "{} connections, {} MB received, {} MB sent, {} requests refused",
                totals.connections,
                totals.received_bytes / 1_000_000,
                totals.sent_bytes / 1_000_000,
                totals.refused
            ));
            Exit::Done
        }
        Err(error) => {
            complain(&format!("cannot listen on {listen}: {error}; name another with --listen ADDR:PORT"));
            Exit::Failed
        }
    }
}

async fn stopped() {
    let stop = signals::flag();
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Every address of a machine is no address to reach it by: the one that its packets to the internet would carry is
/// shown then. Asking for it sends nothing.
fn reached_as(listening: SocketAddr) -> SocketAddr {
    let mut address = listening;
    if address.ip().is_unspecified() {
        let probe = std::net::UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
            socket.connect(("192.0.2.1", 9))?;
            socket.local_addr()
        });
        if let Ok(own) = probe {
            address.set_ip(own.ip());
        }
    }
    address
}
