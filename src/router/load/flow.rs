//! One flow: connection after connection, request after request, until the load is over.

use super::Shared;
use crate::line::Trouble;
use crate::router::http::{self, Connection, Filler, HttpError};
use crate::router::socket::Handle;
use crate::units::Direction;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A connection that broke is made again so often, a little later each time; then the flow is given up.
const PATIENCE: [Duration; 3] = [Duration::from_millis(250), Duration::from_millis(500), Duration::from_secs(1)];

/// A 429 or 503 that names no time is taken to mean this.
const UNNAMED_WAIT: Duration = Duration::from_secs(60);

pub async fn run(shared: Arc<Shared>, flow: usize) {
    let mut patience = PATIENCE.iter();
    while !shared.over() {
        match connection(&shared, flow).await {
            Ok(End::Closed) => patience = PATIENCE.iter(),
            Ok(End::TooLarge) => {}
            Ok(End::Refused { status, wait }) => return shared.refused(status.as_u16(), wait),
            Err(error) => {
                shared.tell(Trouble::ServerLost { error: error.to_string() });
                let Some(wait) = patience.next() else { return };
                tokio::time::sleep(*wait).await;
            }
        }
    }
}

/// Why a connection is over, other than that it broke.
enum End {
    /// The server closed it after an answer, or we have had enough.
    Closed,
    /// The body was too large; the next is smaller.
    TooLarge,
    Refused {
        status: StatusCode,
        wait: Option<Duration>,
    },
}

async fn connection(shared: &Shared, flow: usize) -> Result<End, HttpError> {
    let endpoint = &shared.endpoint;
    let (stream, handle) = endpoint.connect(&shared.via, Some(shared.mss)).await?;
    let Some(_open) = Open::register(shared, flow, handle) else { return Ok(End::Closed) };
    let mut connection = Connection::on(stream).await?;
    let mut answers = 0;
    while connection.ready().await {
        if shared.over() {
            return Ok(End::Closed);
        }
        let (body_bytes, request) = match shared.direction {
            Direction::Upload => {
                let length = shared.server.body_bytes();
                (length, endpoint.request(&Method::POST, Filler::new(shared.server.noise(), length.into()))?)
            }
            Direction::Download => (0, endpoint.request(&Method::GET, Filler::default())?),
        };
        let answer = connection.exchange(request, |answer| async {
            let (head, body) = answer.into_parts();
            if head.status.is_success() {
                let receiving = |on| shared.books().account.receiving(flow, on, Instant::now());
                let read = http::discard(body, || receiving(true)).await;
                receiving(false);
                read?;
            }
            Ok((head.status, head.headers))
        });
        let (status, headers) = answer.await?;
        answers += 1;
        if status == StatusCode::PAYLOAD_TOO_LARGE && shared.server.halve_body(body_bytes) {
            return Ok(End::TooLarge);
        }
        if !status.is_success() {
            return Ok(End::Refused { status, wait: wait(status, &headers) });
        }
    }
    if answers == 0 { Err(HttpError::Closed) } else { Ok(End::Closed) }
}

/// Whether, and for how long, an answer asks to be left alone.
fn wait(status: StatusCode, headers: &HeaderMap) -> Option<Duration> {
    let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    http::retry_after(headers).or(busy.then_some(UNNAMED_WAIT))
}

/// A flow's connection in the books; what it did is added up when it goes.
struct Open<'a> {
    shared: &'a Shared,
    flow: usize,
}

impl<'a> Open<'a> {
    /// `None`: the load ended while we connected.
    fn register(shared: &'a Shared, flow: usize, handle: Handle) -> Option<Self> {
        let mut books = shared.books();
        if books.over {
            return None;
        }
        books.account.opened(flow, shared.endpoint.address.is_ipv6(), Instant::now());
        books.handles[flow] = Some(handle);
        Some(Self { shared, flow })
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut books = self.shared.books();
        books.look(self.flow, now);
        books.account.closed(self.flow, now);
        if let Some(handle) = books.handles[self.flow].take() {
            handle.reset();
        }
    }
}
