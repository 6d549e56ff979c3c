//! Who takes the load: the kinds of servers we know, and whether this one will have us.

use super::http::{self, Answer, Filler, HttpError};
use super::socket::{Via, look_up};
use super::tls::{Client, Trust};
use crate::line::LineError;
use crate::units::Direction;
use bytes::Bytes;
use hyper::{Method, StatusCode, Uri};
use serde::Deserialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use super::http::Endpoint;

/// What the user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Cloudflare,
    /// A server that describes itself in `/.well-known/nq` (ours, and every other that speaks IETF responsiveness),
    /// or LibreSpeed's directory.
    Base(Uri),
    /// Exactly these.
    Urls { upload: Option<Uri>, download: Option<Uri> },
}

/// Bodies of 10 to 25 MB are what Cloudflare takes; on the next request's round trip the other flows fill the line.
const BODY_BYTES: u32 = 25_000_000;
/// A server that refuses even this is not for bulk.
const SMALLEST_BODY_BYTES: u32 = 256 * 1024;
const CLOUDFLARE: &str = "speed.cloudflare.com";
/// In units of MiB, LibreSpeed's own: about as much as an upload's body.
const LIBRESPEED_DOWNLOAD: &str = "backend/garbage.php?ckSize=24";
const LIBRESPEED_UPLOAD: &str = "backend/empty.php";
/// Enough to see whether an upload is accepted at all.
const TRIAL_BODY_BYTES: u64 = 1024;
/// One chunk of a body: more saves nothing, less costs calls.
const CHUNK_BYTES: usize = 64 * 1024;
/// So many addresses of a name are tried.
const ADDRESSES: usize = 4;

impl Choice {
    /// From `--server`, `--upload-url` and `--download-url`.
    ///
    /// # Errors
    /// [`LineError::Refused`] for what is no URL, or a server and a URL at once.
    pub fn from_args(server: Option<&str>, upload: Option<&str>, download: Option<&str>) -> Result<Self, LineError> {
        match (server, upload, download) {
            (None, None, None) => Ok(Self::Cloudflare),
            (Some(server), None, None) => {
                let url = parse(server)?;
                Ok(if url.host() == Some(CLOUDFLARE) { Self::Cloudflare } else { Self::Base(url) })
            }
            (None, upload, download) => {
                Ok(Self::Urls { upload: upload.map(parse).transpose()?, download: download.map(parse).transpose()? })
            }
            (Some(_), _, _) => Err(LineError::refused(
                "a server and a URL for one direction are two answers to one question",
                "Use either --server, or --upload-url and --download-url",
            )),
        }
    }
}

/// A server that has been spoken to: names are resolved, and a small upload was accepted. Clones are the same server.
#[derive(Clone, Debug)]
pub struct Server {
    said: String,
    upload: Option<Endpoint>,
    download: Option<Endpoint>,
    noise: Bytes,
    manners: Arc<Manners>,
}

/// What a server has taught us, for all loads to come.
#[derive(Debug)]
struct Manners {
    body_bytes: AtomicU32,
    quiet_until: Mutex<Option<Instant>>,
}

impl Server {
    /// Finds the server, on an address that works from here, and asks it whether it takes a load. Exchanges a few
    /// kilobytes.
    ///
    /// # Errors
    /// [`LineError::Refused`] in one line, with what to do about it.
    pub async fn resolve(choice: &Choice, via: &Via, trust: &Trust) -> Result<Self, LineError> {
        let mut scout = Scout { via, trust, client: None };
        let (upload, download, kind) = match choice {
            Choice::Cloudflare => {
                let upload = scout.check_upload(parse(&format!("https://{CLOUDFLARE}/__up"))?).await?;
                let down = parse(&format!("https://{CLOUDFLARE}/__down?bytes={BODY_BYTES}"))?;
                let download = Endpoint { url: down, ..upload.clone() };
                (Some(upload), Some(download), "Cloudflare, ")
            }
            Choice::Base(base) => {
                let (upload, download, kind) = scout.describe(base).await?;
                let upload = scout.check_upload(upload).await?;
                (Some(upload), Some(scout.check_download(download).await?), kind)
            }
            Choice::Urls { upload, download } => {
                let mut ends = (None, None);
                if let Some(url) = upload {
                    ends.0 = Some(scout.check_upload(url.clone()).await?);
                }
                if let Some(url) = download {
                    ends.1 = Some(scout.check_download(url.clone()).await?);
                }
                (ends.0, ends.1, "")
            }
        };
        let named = upload.as_ref().or(download.as_ref());
        let said = named.map(|end| format!("{kind}{} ({})", end.host(), end.address.ip())).unwrap_or_default();
        Ok(Self {
            said,
            upload,
            download,
            noise: http::noise(CHUNK_BYTES),
            manners: Arc::new(Manners { body_bytes: AtomicU32::new(BODY_BYTES), quiet_until: Mutex::new(None) }),
        })
    }

    /// Who takes the load, in words for people.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Whether it can take a load of this direction.
    pub fn takes(&self, direction: Direction) -> bool {
        self.endpoint(direction).is_ok()
    }

    /// How long the server has asked to be left alone from now on.
    pub fn wants_quiet(&self, now: Instant) -> Option<Duration> {
        let until = *self.manners.quiet_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.and_then(|until| until.checked_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    pub(crate) fn keep_quiet(&self, until: Instant) {
        let mut known = self.manners.quiet_until.lock().unwrap_or_else(PoisonError::into_inner);
        *known = (*known).max(Some(until));
    }

    pub(crate) fn endpoint(&self, direction: Direction) -> Result<&Endpoint, LineError> {
        let end = match direction {
            Direction::Upload => &self.upload,
            Direction::Download => &self.download,
        };
        end.as_ref().ok_or_else(|| {
            LineError::refused(
                format!("there is no server for the {direction}"),
                format!("Name one with --{direction}-url, or leave this direction out with --direction"),
            )
        })
    }

    /// How long the body of an upload may be, as far as we know.
    pub(crate) fn body_bytes(&self) -> u32 {
        self.manners.body_bytes.load(Ordering::Relaxed)
    }

    /// A body of `refused` bytes was too large. False: smaller ones are not worth it.
    pub(crate) fn halve_body(&self, refused: u32) -> bool {
        if refused / 2 < SMALLEST_BODY_BYTES {
            return false;
        }
        // Another flow may have had the same answer: only the first of them halves.
        let _ = self.manners.body_bytes.compare_exchange(refused, refused / 2, Ordering::Relaxed, Ordering::Relaxed);
        true
    }

    pub(crate) fn noise(&self) -> Bytes {
        self.noise.clone()
    }
}

/// What servers say of themselves; both generations of names (draft-ietf-ippm-responsiveness, and its early drafts).
#[derive(Deserialize)]
struct Described {
    urls: DescribedUrls,
}

#[derive(Deserialize)]
#[expect(clippy::struct_field_names, reason = "the names are the servers'")]
struct DescribedUrls {
    large_download_url: Option<String>,
    large_https_download_url: Option<String>,
    upload_url: Option<String>,
    https_upload_url: Option<String>,
}

/// The upload and the download that a server names; a server may use both generations at once.
fn described(json: &[u8]) -> Result<(String, String), String> {
    let Described { urls } = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let upload = urls.upload_url.or(urls.https_upload_url).ok_or("no upload_url")?;
    let download = urls.large_download_url.or(urls.large_https_download_url).ok_or("no large_download_url")?;
    Ok((upload, download))
}

struct Scout<'a> {
    via: &'a Via,
    trust: &'a Trust,
    client: Option<Client>,
}

impl Scout<'_> {
    /// The upload and download URL of a server of which only the base is known.
    async fn describe(&mut self, base: &Uri) -> Result<(Uri, Uri, &'static str), LineError> {
        let at = |path: &str| parse(&format!("{}://{}{path}", base.scheme_str().unwrap_or_default(), authority(base)));
        let (_, answer) = self.ask(at("/.well-known/nq")?, Method::GET).await?;
        if answer.status.is_success() {
            let body = answer.body.map_err(|error| LineError::failed("read the server's description", error))?;
            let (upload, download) = described(&body).map_err(|error| {
                LineError::refused(
                    format!("{} describes itself in a way we do not understand ({error})", authority(base)),
                    "Name its URLs with --upload-url and --download-url",
                )
            })?;
            return Ok((parse(&upload)?, parse(&download)?, ""));
        }
        let directory = base.path().trim_end_matches('/');
        let upload = at(&format!("{directory}/{LIBRESPEED_UPLOAD}"))?;
        let (_, answer) = self.ask(upload.clone(), Method::POST).await?;
        if answer.status.is_success() {
            return Ok((upload, at(&format!("{directory}/{LIBRESPEED_DOWNLOAD}"))?, "LibreSpeed, "));
        }
        Err(LineError::refused(
            format!("{base} has neither /.well-known/nq nor LibreSpeed's backend/empty.php"),
            "Use the base URL of a server that does, or name --upload-url and --download-url",
        ))
    }

    async fn check_upload(&mut self, url: Uri) -> Result<Endpoint, LineError> {
        let (end, answer) = self.ask(url, Method::POST).await?;
        accepted(&end.url, "an upload", &answer)?;
        Ok(end)
    }

    /// Asks for the download itself, and breaks it off when it begins.
    async fn check_download(&mut self, url: Uri) -> Result<Endpoint, LineError> {
        let (end, answer) = self.ask(url, Method::GET).await?;
        accepted(&end.url, "a download", &answer)?;
        Ok(end)
    }

    /// Asks on the first address that answers, whichever family it is of.
    async fn ask(&mut self, url: Uri, method: Method) -> Result<(Endpoint, Answer), LineError> {
        let secure = url.scheme_str() == Some("https");
        let port = url.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tls = if secure { Some(self.client()?) } else { None };
        let body = if method == Method::POST {
            Filler::new(http::noise(TRIAL_BODY_BYTES as usize), TRIAL_BODY_BYTES)
        } else {
            Filler::default()
        };
        let mut last = None;
        for address in look_up(url.host().unwrap_or_default(), port).await?.into_iter().take(ADDRESSES) {
            let end = Endpoint { url: url.clone(), address, tls: tls.clone() };
            match end.ask(self.via, method.clone(), body.clone()).await {
                Ok(answer) => return Ok((end, answer)),
                Err(error) => {
                    log::debug!("{url} on {address}: {error}");
                    last = Some(error);
                }
            }
        }
        Err(unreachable(&url, last))
    }

    fn client(&mut self) -> Result<Client, LineError> {
        if let Some(client) = &self.client {
            return Ok(client.clone());
        }
        let client = Client::new(self.trust)?;
        self.client = Some(client.clone());
        Ok(client)
    }
}

fn unreachable(url: &Uri, error: Option<HttpError>) -> LineError {
    match error {
        Some(HttpError::Tls { host, error }) => {
            LineError::refused(format!("no TLS connection to {host}: {}", error.problem), error.fix)
        }
        Some(error) => LineError::refused(
            format!("the load server {} does not answer ({error})", authority(url)),
            "Check that the line is up, or name another with --server",
        ),
        None => LineError::refused(format!("{url} has no address"), "Name another server with --server"),
    }
}

fn accepted(url: &Uri, what: &str, answer: &Answer) -> Result<(), LineError> {
    let status = answer.status;
    let server = authority(url);
    let wait = http::retry_after(&answer.headers);
    let fix = match status {
        _ if status.is_success() => return Ok(()),
        _ if status.is_redirection() => {
            let to = answer.headers.get(hyper::header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or("elsewhere");
            format!("It points to {to}: if you trust that, use its URL")
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let seconds = wait.map_or_else(|| "a few minutes".to_owned(), |wait| format!("{} s", wait.as_secs()));
            format!("Try again in {seconds}, or name another server with --server")
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "Check the URL".to_owned(),
        _ => "Name another server with --server".to_owned(),
    };
    Err(LineError::refused(format!("{server} refuses {what} with status {}", status.as_u16()), fix))
}

fn authority(url: &Uri) -> &str {
    url.authority().map_or("", hyper::http::uri::Authority::as_str)
}

fn parse(text: &str) -> Result<Uri, LineError> {
    let url = text.parse::<Uri>().ok().filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
    let url = url.filter(|url| url.host().is_some_and(|host| !host.is_empty()) && !authority(url).contains('@'));
    url.ok_or_else(|| {
        LineError::refused(format!("{text} is no URL of a load server"), "Write it as http://HOST/… or https://HOST/…")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_make_one_choice() {
        let choice = |server, up, down| Choice::from_args(server, up, down);
        assert_eq!(choice(None, None, None), Ok(Choice::Cloudflare));
        assert_eq!(choice(Some("https://speed.cloudflare.com/"), None, None), Ok(Choice::Cloudflare));
        let base = Uri::from_static("http://192.168.1.2:8080/");
        assert_eq!(choice(Some("http://192.168.1.2:8080"), None, None), Ok(Choice::Base(base)));
        let up = Uri::from_static("http://a/up");
        let urls = Choice::Urls { upload: Some(up), download: None };
        assert_eq!(choice(None, Some("http://a/up"), None), Ok(urls));
        assert!(choice(Some("http://a"), Some("http://a/up"), None).is_err());
        for wrong in ["example.net", "ftp://a/", "http://", "/up", "http://user@host/"] {
            let said = choice(Some(wrong), None, None).expect_err(wrong).to_string();
            assert!(said.starts_with(wrong), "{said}");
        }
    }

    #[test]
    fn both_generations_of_descriptions_are_understood() {
        let new =
            r#"{"version": 1, "urls": {"large_download_url": "l", "small_download_url": "s", "upload_url": "u"}}"#;
        let old = r#"{"version": 1, "urls": {"large_https_download_url": "l", "small_https_download_url": "s",
                      "https_upload_url": "u"}, "test_endpoint": "x"}"#;
        let both = r#"{"urls": {"large_download_url": "l", "upload_url": "u", "https_upload_url": "u"}}"#;
        for text in [new, old, both] {
            assert_eq!(described(text.as_bytes()), Ok(("u".into(), "l".into())));
        }
        assert_eq!(described(br#"{"urls": {"upload_url": "u"}}"#), Err("no large_download_url".into()));
    }
}
