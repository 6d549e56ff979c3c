//! `serve`: a sink for uploads and a source of downloads that users can host themselves, so that a calibration needs
//! nobody else's server. Pings to it are answered by its kernel.
//!
//! Plain HTTP on purpose: a weak router's processor should carry packets, not ciphers. Who wants HTTPS puts a TLS
//! front before it. Every client is limited in connections, bytes and time, because a server like this one is found
//! by others sooner or later.

mod answer;
mod clients;

use answer::{Answers, Piece};
use clients::{Clients, Refusal};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a server lets its clients do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At once, all clients together.
    pub connections: usize,
    /// At once, one client (an IPv4 address, or an IPv6 /64).
    pub connections_per_client: usize,
    /// In both directions together, one client, in each `window`.
    pub bytes_per_client: u64,
    /// In which one client has a connection open, in each `window`.
    pub time_per_client: Duration,
    pub window: Duration,
    /// One request's or answer's body.
    pub body_bytes: u64,
    /// One request, and a connection without one.
    pub request_time: Duration,
}

impl Default for Limits {
    /// Sixty flows, a dozen calibrations of a fast line in an hour, and bodies of more than the 25 MB that we send.
    fn default() -> Self {
        Self {
            connections: 256,
            connections_per_client: 80,
            bytes_per_client: 20_000_000_000,
            time_per_client: Duration::from_secs(1800),
            window: Duration::from_secs(3600),
            body_bytes: 100_000_000,
            request_time: Duration::from_secs(60),
        }
    }
}

/// What a server did in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub connections: u32,
    /// Requests that were refused, for whatever reason.
    pub refused: u32,
    /// Bodies only.
    pub received_bytes: u64,
    pub sent_bytes: u64,
}

/// After a connection's last answer, the client may read it for so long before the connection is torn down.
const LINGER: Duration = Duration::from_secs(1);

/// When the server stops, requests under way may take so much longer.
const GRACE: Duration = Duration::from_secs(2);

/// So many refused connections are answered at once; those beyond are just closed.
const MOST_REFUSALS: usize = 32;

/// Serves until `stop` is ready. Needs a tokio runtime around it.
///
/// # Errors
/// The address cannot be used.
pub async fn serve(listen: SocketAddr, limits: Limits, stop: impl Future<Output = ()>) -> io::Result<Totals> {
    Ok(Bound::to(listen, limits).await?.run(stop).await)
}

/// A server that has its port, but no client yet.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    limits: Limits,
}

impl Bound {
    /// Port 0 takes any free one: ask [`Bound::address`].
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn to(listen: SocketAddr, limits: Limits) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(listen).await?, limits })
    }

    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is ready, then lets requests under way end, but not for long.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Totals {
        let desk = Arc::new(Desk {
            answers: Answers::new(self.limits.clone()),
            books: Mutex::new(Books { clients: Clients::new(self.limits), totals: Totals::default(), refusals: 0 }),
        });
        let (closing, closed) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        if let Some(guest) = Guest::welcome(&desk, peer.ip()) {
                            connections.spawn(attend(guest, stream, closed.clone()));
                        }
                    }
                    Err(error) => {
                        // Out of descriptors, mostly: those under way have to end first.
                        log::warn!("cannot accept a connection: {error}");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(self.listener);
        // Nobody left to tell is as good.
        let _ = closing.send(true);
        let all_done = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, all_done).await.is_err() {
            connections.shutdown().await;
        }
        desk.books().totals
    }
}

/// What all connections share.
#[derive(Debug)]
struct Desk {
    answers: Answers,
    books: Mutex<Books>,
}

#[derive(Debug)]
struct Books {
    clients: Clients,
    totals: Totals,
    /// Connections that are only being told why not.
    refusals: usize,
}

impl Desk {
    fn books(&self) -> MutexGuard<'_, Books> {
        // Nothing is left half done under the lock.
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place in the books; it gives it back when it goes.
#[derive(Debug)]
struct Guest {
    desk: Arc<Desk>,
    client: IpAddr,
    /// Why it gets nothing but this answer.
    refusal: Option<Refusal>,
    /// When it last asked for or moved something.
    active: Mutex<Instant>,
}

impl Guest {
    /// `None`: we are too busy even to say no.
    fn welcome(desk: &Arc<Desk>, peer: IpAddr) -> Option<Self> {
        let mut books = desk.books();
        let refusal = books.clients.arrive(peer, Instant::now()).err();
        if refusal.is_some() {
            books.totals.refused += 1;
            if books.refusals >= MOST_REFUSALS {
                return None;
            }
            books.refusals += 1;
        }
        books.totals.connections += 1;
        drop(books);
        Some(Self { desk: desk.clone(), client: peer, refusal, active: Mutex::new(Instant::now()) })
    }

    /// Whether a new request is welcome.
    fn request(&self) -> Result<(), Refusal> {
        let now = Instant::now();
        self.stir(now);
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => self.desk.books().clients.check(self.client, now),
        }
    }

    /// Books a piece of a body. An error once the client has had its share.
    fn moved(&self, piece: Piece) -> Result<(), Refusal> {
        let now = Instant::now();
        self.stir(now);
        let mut books = self.desk.books();
        let bytes = match piece {
            Piece::Received(bytes) => {
                books.totals.received_bytes += bytes;
                bytes
            }
            Piece::Sent(bytes) => {
                books.totals.sent_bytes += bytes;
                bytes
            }
        };
        books.clients.moved(self.client, bytes, now)
    }

    fn stir(&self, now: Instant) {
        *self.active.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Waits until nothing has happened for as long as one request may take: whoever does not read gets no more.
    async fn asleep(&self) {
        let patience = self.desk.answers.limits().request_time + LINGER;
        loop {
            let until = *self.active.lock().unwrap_or_else(PoisonError::into_inner) + patience;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn refused(&self) {
        if self.refusal.is_none() {
            self.desk.books().totals.refused += 1;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut books = self.desk.books();
        if self.refusal.is_some() {
            books.refusals -= 1;
        } else {
            books.clients.leave(self.client, Instant::now());
        }
    }
}

/// One connection from its first byte to its last.
async fn attend(guest: Guest, stream: TcpStream, mut closing: watch::Receiver<bool>) {
    let guest = Arc::new(guest);
    let service = service_fn(|request| {
        let guest = guest.clone();
        Box::pin(async move { Ok::<_, Infallible>(answer::answer(guest, request).await) })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(guest.desk.answers.limits().request_time)
        .serve_connection(TokioIo::new(stream), service);
    let closing = async {
        // The sender gone is as good a reason to close.
        let _ = closing.wait_for(|closing| *closing).await;
    };
    let ended = tokio::select! {
        ended = poll_fn(|context| connection.poll_without_shutdown(context)) => ended,
        () = guest.asleep() => return,
        () = closing => {
            Pin::new(&mut connection).graceful_shutdown();
            poll_fn(|context| connection.poll_without_shutdown(context)).await
        }
    };
    if let Err(error) = ended {
        log::debug!("a connection from {} broke: {error}", guest.client);
        return;
    }
    // A client that is still sending must get to read our answer before the reset that its bytes would cause.
    let mut stream = connection.into_parts().io.into_inner();
    let mut rest = vec![0; 16 * 1024];
    let linger = async {
        stream.shutdown().await?;
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Gone, broken or still talking: in any case that was that.
    let _ = tokio::time::timeout(LINGER, linger).await;
}
