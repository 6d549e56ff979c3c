//! A probe by TCP: how long the load server takes to accept a connection.
//!
//! Nobody on the way treats a connection request as a ping. The kernel times it itself, from the request's entry into
//! the queueing discipline to its answer, however busy we are.

use crate::line::PROBE_TIMEOUT;
use crate::router::socket::{Handle, Via};
use crate::router::tcp_info::TcpInfo;
use std::net::SocketAddr;
use std::time::Duration;

/// `None`: no answer in time, or only to a repeated request, whose time means nothing.
pub async fn handshake(to: SocketAddr, via: &Via) -> Option<Duration> {
    let stream = tokio::time::timeout(PROBE_TIMEOUT, via.connect(to, None)).await.ok()?;
    let timed = stream.and_then(|stream| {
        let info = TcpInfo::of(&stream);
        // No goodbye: a closing connection would take another two packets and keep its port for a minute.
        Handle::of(&stream)?.reset();
        info
    });
    match timed {
        Ok(info) => Some(info.rtt).filter(|_| info.total_retrans == 0),
        Err(error) => {
            log::debug!("cannot time a handshake with {to}: {error}");
            None
        }
    }
}
