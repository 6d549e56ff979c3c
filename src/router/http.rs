//! HTTP/1.1 over connections of our own: hyper above, a socket that we can look at below.
//!
//! Why not reqwest: it hides the socket, and the delivered bytes come from the socket's TCP_INFO, as do segment size,
//! device and mark. Besides, hyper alone is 556 kB smaller in a program for mipsel.

use super::socket::{Handle, Via};
use super::tls;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite};

/// Said in every request: who we are, and nothing else.
pub const USER_AGENT: &str = concat!("sqm-autotune/", env!("CARGO_PKG_VERSION"));

/// A whole small exchange takes no longer than this, or the server is as good as gone.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// More than any description of a server needs.
const SMALL_ANSWER: usize = 64 * 1024;

/// Why there is no (whole) answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("cannot connect to {address}: {error}")]
    Connect { address: SocketAddr, error: io::Error },
    #[error("no TLS connection to {host}: {}", .error.problem)]
    Tls { host: String, error: tls::TlsError },
    #[error("the connection broke: {}", innermost(.0))]
    Broken(#[from] hyper::Error),
    #[error("no answer within {} s", EXCHANGE_TIMEOUT.as_secs())]
    Silent,
    #[error("cannot make a request: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("cannot watch the connection: {0}")]
    Watch(io::Error),
    #[error("the connection was closed before the first answer")]
    Closed,
    #[error("the answer is too long")]
    TooLong,
}

/// hyper says that the connection broke; what is behind it says why.
fn innermost(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), innermost)
}

/// One URL and the address behind it.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub url: Uri,
    pub address: SocketAddr,
    /// `None`: plain HTTP.
    pub tls: Option<tls::Client>,
}

impl Endpoint {
    pub fn host(&self) -> &str {
        self.url.host().unwrap_or_default()
    }

    /// A request to this endpoint, as an origin server wants it (RFC 9112, 3.2.1).
    pub fn request(&self, method: &Method, body: Filler) -> Result<Request<Filler>, hyper::http::Error> {
        let path = self.url.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
        let host = self.url.authority().map_or("", hyper::http::uri::Authority::as_str);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "*/*");
        let request = if *method == Method::POST {
            request.header(header::CONTENT_TYPE, "application/octet-stream")
        } else {
            request
        };
        request.body(body)
    }

    /// Connects, with TLS where the URL says so. The handle watches the TCP connection below.
    pub async fn connect(&self, via: &Via, mss: Option<u32>) -> Result<(Stream, Handle), HttpError> {
        let refused = |error| HttpError::Connect { address: self.address, error };
        let tcp = via.connect(self.address, mss).await.map_err(refused)?;
        let handle = Handle::of(&tcp).map_err(HttpError::Watch)?;
        let stream: Stream = match &self.tls {
            None => Box::new(tcp),
            Some(tls) => {
                let secure = tls.connect(self.host(), tcp);
                let secure = tokio::time::timeout(EXCHANGE_TIMEOUT, secure).await.map_err(|_| HttpError::Silent)?;
                secure.map_err(|error| HttpError::Tls { host: self.host().to_owned(), error })?
            }
        };
        Ok((stream, handle))
    }

    /// One request on a connection of its own, with a small answer.
    pub async fn ask(&self, via: &Via, method: Method, body: Filler) -> Result<Answer, HttpError> {
        let whole = async {
            let request = self.request(&method, body)?;
            let (stream, _handle) = self.connect(via, None).await?;
            let mut connection = Connection::on(stream).await?;
            let read = |answer: Response<Incoming>| async {
                let (head, body) = answer.into_parts();
                // Who sends more than a little was asked for the head only.
                let body = Limited::new(body, SMALL_ANSWER).collect().await;
                Ok((head, body.map(http_body_util::Collected::to_bytes).map_err(|_| HttpError::TooLong)))
            };
            let (head, body) = connection.exchange(request, read).await?;
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::time::timeout(EXCHANGE_TIMEOUT, whole).await.unwrap_or(Err(HttpError::Silent))
    }
}

pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Result<Bytes, HttpError>,
}

/// A connection for request after request.
pub(crate) struct Connection {
    sender: http1::SendRequest<Filler>,
    /// Dropped when it is done: only then does hyper tell the sender of it.
    driver: Option<Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>>,
}

impl Connection {
    pub async fn on(stream: Stream) -> Result<Self, HttpError> {
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Waits until the next request may be sent; false: the server has closed the connection, as it may.
    pub async fn ready(&mut self) -> bool {
        let ready = self.sender.ready();
        alongside(&mut self.driver, ready).await.is_ok()
    }

    /// Sends a request and hands the answer to `receive`.
    pub async fn exchange<T, F>(
        &mut self,
        request: Request<Filler>,
        receive: impl FnOnce(Response<Incoming>) -> F,
    ) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        let answer = self.sender.send_request(request);
        alongside(&mut self.driver, async { receive(answer.await?).await }).await
    }
}

/// Drives a connection until `work` on it is done.
async fn alongside<T, D: Future + Unpin>(driver: &mut Option<D>, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    if let Some(running) = driver {
        tokio::select! {
            biased;
            done = &mut work => return done,
            _ = running => {}
        }
        // Whatever ended the connection, the work has its answer already or hears of it now.
        *driver = None;
    }
    work.await
}

/// Reads a body to its end and forgets it; `first` is called when it begins.
pub(crate) async fn discard(mut body: Incoming, first: impl FnOnce()) -> Result<(), HttpError> {
    let mut first = Some(first);
    while let Some(frame) = body.frame().await {
        frame?;
        if let Some(first) = first.take() {
            first();
        }
    }
    Ok(())
}

/// How long the server wants to be left alone: seconds or a date (RFC 9110, 10.2.3). A date is taken relative to the
/// server's own clock, because a router's may be anything.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let then = date(text)?;
    let now = headers.get(header::DATE).and_then(|now| date(now.to_str().ok()?)).unwrap_or_else(SystemTime::now);
    Some(then.duration_since(now).unwrap_or_default())
}

pub(crate) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

/// TCP, or TLS above it.
pub(crate) type Stream = Box<dyn ReadWrite>;

/// A request body of so many bytes, all of them the same chunk over and over.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filler {
    chunk: Bytes,
    left: u64,
}

impl Filler {
    pub fn new(chunk: Bytes, length: u64) -> Self {
        Self { chunk, left: length }
    }
}

impl Body for Filler {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_end_stream() {
            return Poll::Ready(None);
        }
        let length = self.left.min(self.chunk.len() as u64);
        self.left -= length;
        Poll::Ready(Some(Ok(Frame::data(self.chunk.slice(..length as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 || self.chunk.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(if self.chunk.is_empty() { 0 } else { self.left })
    }
}

/// Bytes that no compression on the way makes smaller: xorshift (Marsaglia 2003), the same in every run.
pub(crate) fn noise(length: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(length + 8);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), header::HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_by_the_servers_clock() {
        let after = |value| {
            retry_after(&headers(&[(header::RETRY_AFTER, value), (header::DATE, "Mon, 30 Nov 2026 10:00:00 GMT")]))
        };
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("Mon, 30 Nov 2026 10:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(after("Mon, 30 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(after("soon"), None);
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }

    #[test]
    fn a_filler_is_as_long_as_it_says() {
        let mut filler = Filler::new(noise(1000), 2500);
        assert_eq!(filler.size_hint().exact(), Some(2500));
        let mut lengths = Vec::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut filler).poll_frame(&mut context) {
            lengths.push(frame.into_data().map_or(0, |data| data.len()));
        }
        assert_eq!(lengths, [1000, 1000, 500]);
        assert!(Filler::default().is_end_stream());
    }

    #[test]
    fn noise_does_not_repeat() {
        let noise = noise(64 * 1024);
        let mut words: Vec<_> = noise.chunks(8).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 8192);
    }
}
