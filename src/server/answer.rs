//! Which request gets which answer.

use super::clients::{Refusal, Why};
use super::{Guest, Limits};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::{Instant, Sleep, timeout_at};

/// Part of a body, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    Received(u64),
    Sent(u64),
}

const CHUNK_BYTES: usize = 64 * 1024;
/// LibreSpeed's default for a download that does not say how much it wants, in its unit.
const DEFAULT_MIB: u64 = 4;
const MIB: u64 = 1024 * 1024;

/// What a server can say.
#[derive(Debug)]
pub struct Answers {
    limits: Limits,
    /// One chunk of noise, sent over and over.
    chunk: Bytes,
}

impl Answers {
    pub fn new(limits: Limits) -> Self {
        Self { limits, chunk: noise(CHUNK_BYTES) }
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Sink,
    Source {
        bytes: u64,
    },
    Description,
    Page,
    /// Not with this method.
    Method,
    Nothing,
}

impl Wish {
    /// Our own names, Cloudflare's, and LibreSpeed's.
    fn of(method: &Method, path: &str, query: &str, limits: &Limits) -> Self {
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let sink = path.ends_with("/upload") || path.ends_with("/__up") || path.ends_with("/backend/empty.php");
        if matches!(*method, Method::POST | Method::PUT) {
            return Self::Sink;
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Self::Method;
        }
        match path {
            "/" => Self::Page,
            "/.well-known/nq" => Self::Description,
            "/large" => Self::Source { bytes: limits.body_bytes },
            "/small" => Self::Source { bytes: 1 },
            _ if path.ends_with("/__down") => Self::Source { bytes: number("bytes").unwrap_or(0) },
            _ if path.ends_with("/backend/garbage.php") => {
                Self::Source { bytes: number("ckSize").unwrap_or(DEFAULT_MIB).saturating_mul(MIB) }
            }
            // LibreSpeed pings it with GET.
            _ if path.ends_with("/backend/empty.php") => Self::Source { bytes: 0 },
            _ if sink => Self::Method,
            _ => Self::Nothing,
        }
    }
}

/// Answers one request, and books what it moves.
pub async fn answer(guest: Arc<Guest>, request: Request<Incoming>) -> Response<Reply> {
    let limits = guest.desk.answers.limits();
    if let Err(refusal) = guest.request() {
        guest.refused();
        return refuse(refusal);
    }
    let wish = Wish::of(request.method(), request.uri().path(), request.uri().query().unwrap_or_default(), limits);
    let response = match wish {
        Wish::Sink => {
            let swallowed = swallow(&guest, request).await;
            return swallowed.unwrap_or_else(|refusal| {
                guest.refused();
                refusal
            });
        }
        Wish::Source { bytes } if bytes > limits.body_bytes => {
            say(StatusCode::FORBIDDEN, format!("At most {} bytes at once.\n", limits.body_bytes))
        }
        Wish::Source { bytes } => {
            let mut response = Response::new(Reply::noise(guest.clone(), bytes));
            typed(&mut response, "application/octet-stream");
            return response;
        }
        Wish::Description => {
            let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
            let Some(host) = host.filter(|host| is_authority(host)) else {
                guest.refused();
                return say(StatusCode::BAD_REQUEST, "A request needs a Host.\n");
            };
            let mut response = Response::new(Reply::text(description(host)));
            typed(&mut response, "application/json");
            return response;
        }
        Wish::Page => return say(StatusCode::OK, page(limits)),
        Wish::Method => {
            let mut response = say(StatusCode::METHOD_NOT_ALLOWED, "GET, HEAD, POST or PUT.\n");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT"));
            response
        }
        Wish::Nothing => say(StatusCode::NOT_FOUND, "There is nothing here. / says what there is.\n"),
    };
    guest.refused();
    response
}

/// Reads an upload to its end. The error is the refusal to go on.
async fn swallow(guest: &Guest, request: Request<Incoming>) -> Result<Response<Reply>, Response<Reply>> {
    let limits = guest.desk.answers.limits();
    let too_large =
        || ending(say(StatusCode::PAYLOAD_TOO_LARGE, format!("At most {} bytes at once.\n", limits.body_bytes)));
    let mut body = request.into_body();
    if body.size_hint().lower() > limits.body_bytes {
        return Err(too_large());
    }
    let deadline = Instant::now() + limits.request_time;
    let mut received = 0;
    loop {
        let frame = timeout_at(deadline, body.frame()).await;
        let frame = frame.map_err(|_| ending(say(StatusCode::REQUEST_TIMEOUT, "That took too long.\n")))?;
        let Some(frame) = frame else { break };
        let Ok(frame) = frame else {
            // The client's doing, mostly because it has seen enough: nobody was refused, and nobody listens.
            return Ok(ending(say(StatusCode::BAD_REQUEST, "The body broke off.\n")));
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        received += bytes;
        guest.moved(Piece::Received(bytes)).map_err(refuse)?;
        if received > limits.body_bytes {
            return Err(too_large());
        }
    }
    Ok(say(StatusCode::OK, ""))
}

fn refuse(refusal: Refusal) -> Response<Reply> {
    let (status, text) = match refusal.why {
        Why::Full => (StatusCode::SERVICE_UNAVAILABLE, "Too many clients at the moment.\n"),
        Why::Connections => (StatusCode::TOO_MANY_REQUESTS, "Too many connections from your address.\n"),
        Why::Bytes => (StatusCode::TOO_MANY_REQUESTS, "Your address has moved all the bytes it may for now.\n"),
        Why::Time => (StatusCode::TOO_MANY_REQUESTS, "Your address has used all the time it may for now.\n"),
    };
    let mut response = ending(say(status, text));
    let seconds = refusal.wait.as_millis().div_ceil(1000).max(1) as u64;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

fn say(status: StatusCode, text: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Reply::text(text));
    *response.status_mut() = status;
    typed(&mut response, "text/plain; charset=utf-8");
    response
}

fn typed(response: &mut Response<Reply>, kind: &'static str) {
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

/// The last answer on its connection.
fn ending(mut response: Response<Reply>) -> Response<Reply> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Nothing that would need escaping where we repeat it.
fn is_authority(host: &str) -> bool {
    !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte))
}

/// IETF responsiveness, section "Discovery": where to load from.
fn description(host: &str) -> String {
    format!(
        concat!(
            r#"{{"version": 1, "urls": {{"large_download_url": "http://{0}/large", "#,
            r#""small_download_url": "http://{0}/small", "upload_url": "http://{0}/upload"}}}}"#,
            "\n"
        ),
        host
    )
}

fn page(limits: &Limits) -> String {
    format!(
        "sqm-autotune {}: a load server for calibrating home routers.\n\n\
         POST or PUT /upload      swallows up to {} bytes (also /__up, /backend/empty.php, any path)\n\
         GET /large /small        noise (also /__down?bytes=N, /backend/garbage.php?ckSize=MIB)\n\
         GET /.well-known/nq      the same for programs\n\n\
         Each address may use {} connections at once, {} bytes and {} s in {} s.\n\
         Plain HTTP; for HTTPS put a TLS front before it.\n",
        env!("CARGO_PKG_VERSION"),
        limits.body_bytes,
        limits.connections_per_client,
        limits.bytes_per_client,
        limits.time_per_client.as_secs(),
        limits.window.as_secs(),
    )
}

/// An answer's body: a text, or noise that is booked as it goes.
#[derive(Debug)]
pub struct Reply {
    left: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text(Bytes),
    Noise { guest: Arc<Guest>, deadline: Pin<Box<Sleep>> },
}

impl Reply {
    fn text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self { left: text.len() as u64, kind: Kind::Text(text) }
    }

    fn noise(guest: Arc<Guest>, bytes: u64) -> Self {
        let deadline = Box::pin(tokio::time::sleep(guest.desk.answers.limits().request_time));
        Self { left: bytes, kind: Kind::Noise { guest, deadline } }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let this = &mut *self;
        let data = match &mut this.kind {
            Kind::Text(text) => std::mem::take(text),
            Kind::Noise { guest, deadline } => {
                if deadline.as_mut().poll(context).is_ready() {
                    return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut))));
                }
                let chunk = &guest.desk.answers.chunk;
                let data = chunk.slice(..this.left.min(chunk.len() as u64) as usize);
                if guest.moved(Piece::Sent(data.len() as u64)).is_err() {
                    // The head is long gone: breaking off is all that is left to say.
                    return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::QuotaExceeded))));
                }
                data
            }
        };
        this.left -= data.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Bytes that no compression makes smaller: a linear congruential generator (Knuth's MMIX), its upper half.
fn noise(length: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(length + 4);
    let mut state = 1_u64;
    while bytes.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&((state >> 32) as u32).to_be_bytes());
    }
    bytes.truncate(length);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_three_kinds_of_servers_are_known() {
        let limits = Limits { body_bytes: 1000, ..Limits::default() };
        let wish = |method: Method, path, query| Wish::of(&method, path, query, &limits);
        assert_eq!(wish(Method::POST, "/upload", ""), Wish::Sink);
        assert_eq!(wish(Method::PUT, "/whatever", ""), Wish::Sink);
        assert_eq!(wish(Method::GET, "/upload", ""), Wish::Method);
        assert_eq!(wish(Method::DELETE, "/", ""), Wish::Method);
        assert_eq!(wish(Method::GET, "/large", ""), Wish::Source { bytes: 1000 });
        assert_eq!(wish(Method::GET, "/__down", "x=1&bytes=17"), Wish::Source { bytes: 17 });
        assert_eq!(wish(Method::GET, "/__down", "kilobytes=17"), Wish::Source { bytes: 0 });
        assert_eq!(wish(Method::GET, "/backend/garbage.php", "ckSize=2"), Wish::Source { bytes: 2 * MIB });
        assert_eq!(
            wish(Method::GET, "/backend/garbage.php", "ckSize=18446744073709551615"),
            Wish::Source { bytes: u64::MAX }
        );
        assert_eq!(wish(Method::GET, "/.well-known/nq", ""), Wish::Description);
        assert_eq!(wish(Method::GET, "/robots.txt", ""), Wish::Nothing);
    }

    #[test]
    fn a_host_that_would_break_out_of_the_description_is_none() {
        assert!(is_authority("[2001:db8::1]:8080") && is_authority("load.example.net"));
        assert!(!is_authority("a\"b") && !is_authority("") && !is_authority("a/b"));
    }
}
