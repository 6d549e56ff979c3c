//! The load against servers on loopback: ours, and some that misbehave.
#![cfg(all(feature = "router", feature = "server"))]

use sqm_autotune::line::{self, Flows, LineError, Origin, Trouble};
use sqm_autotune::router::load::Load;
use sqm_autotune::router::socket::Via;
use sqm_autotune::router::target::{Choice, Server};
use sqm_autotune::router::tls::Trust;
use sqm_autotune::server::{Bound, Limits, Totals};
use sqm_autotune::units::Direction;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A test that waits longer than this has failed; no test is about how long anything takes.
const LIMIT: Duration = Duration::from_secs(30);

fn load(direction: Direction, flows: u32, mss: u32) -> line::Load {
    line::Load { direction, flows, mss, origin: Origin::Local }
}

fn loopback() -> Via {
    Via { device: Some("lo".into()), ..Via::default() }
}

/// One of ours, running.
struct Ours {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<Totals>,
}

impl Ours {
    async fn start(limits: Limits) -> Self {
        let bound = Bound::to("127.0.0.1:0".parse().unwrap(), limits).await.unwrap();
        let address = bound.address().unwrap();
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        Self { address, stop, done }
    }

    async fn server(&self) -> Server {
        let choice = Choice::from_args(Some(&format!("http://{}", self.address)), None, None).unwrap();
        Server::resolve(&choice, &loopback(), &Trust::default()).await.unwrap()
    }

    async fn totals(self) -> Totals {
        self.stop.send(()).unwrap();
        self.done.await.unwrap()
    }
}

/// Looks every 10 ms until the load has done what is waited for.
async fn until(load: &mut Load, what: &str, reached: impl Fn(&Flows) -> bool) -> Flows {
    let looking = async {
        loop {
            let flows = load.flows();
            if reached(&flows) {
                return flows;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let found = tokio::time::timeout(LIMIT, looking).await;
    found.unwrap_or_else(|_| panic!("never came: {what}; {:?}, {:?}", load.flows(), load.trouble()))
}

async fn trouble(load: &mut Load) -> Trouble {
    let looking = async {
        loop {
            load.flows();
            if let Some(trouble) = load.trouble() {
                return trouble;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LIMIT, looking).await.expect("no trouble came")
}

/// A server of the test's own making: `behave` gets each connection and its number, counted from 0.
async fn misbehaving<F>(behave: impl Fn(TcpStream, usize) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(behave(stream, number));
        }
    });
    address
}

/// Reads a request's head; what follows of its body is left.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap_or(b'\n'));
        if head.ends_with(b"\n\n") {
            break;
        }
    }
    String::from_utf8(head).unwrap()
}

fn content_length(head: &str) -> usize {
    let line = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    line.map_or(0, |length| length.parse().unwrap())
}

/// Accepts the small upload with which a server is tried out, then hands the connection to `after`.
async fn accept_small(stream: &mut TcpStream) {
    let head = head(stream).await;
    let mut body = vec![0; content_length(&head)];
    stream.read_exact(&mut body).await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
}

async fn upload_to(address: SocketAddr) -> Server {
    let choice = Choice::from_args(None, Some(&format!("http://{address}/up")), None).unwrap();
    Server::resolve(&choice, &loopback(), &Trust::default()).await.unwrap()
}

#[tokio::test]
async fn an_upload_runs_over_many_flows_and_goes_on_after_each_body() {
    let ours = Ours::start(Limits::default()).await;
    let server = ours.server().await;
    assert!(server.said().contains("127.0.0.1"), "{}", server.said());
    let mut load = Load::start(&load(Direction::Upload, 4, 1460), &server, &loopback()).unwrap();
    // More than four bodies of 25 MB: each flow has begun a second one.
    let flows = until(&mut load, "a second body", |flows| flows.payload_bytes > 150_000_000).await;
    assert_eq!((flows.direction, flows.alive), (Direction::Upload, 4));
    assert!(flows.packets > 0 && flows.srtt_ms.is_some());
    assert!(flows.ip_bytes > flows.payload_bytes && flows.sent_ip_bytes >= flows.ip_bytes, "{flows:?}");
    assert!((0.0..=1.0).contains(&flows.sender_limited));
    assert_eq!(load.trouble(), None);
    drop(load);
    let totals = ours.totals().await;
    assert!(totals.received_bytes > 100_000_000, "{totals:?}");
    assert_eq!(totals.refused, 0);
}

#[tokio::test]
async fn a_download_counts_what_arrives() {
    let ours = Ours::start(Limits { body_bytes: 1_000_000, ..Limits::default() }).await;
    let mut load = Load::start(&load(Direction::Download, 3, 1460), &ours.server().await, &loopback()).unwrap();
    let flows = until(&mut load, "twenty bodies", |flows| flows.payload_bytes > 20_000_000 && flows.alive == 3).await;
    assert_eq!((flows.direction, flows.sent_ip_bytes, flows.retransmits), (Direction::Download, 0, 0));
    assert!(flows.packets > 0 && flows.ip_bytes > flows.payload_bytes);
    assert_eq!(load.trouble(), None);
    drop(load);
    assert!(ours.totals().await.sent_bytes > 19_000_000);
}

/// The server keeps the connection open and counts: in the end both sides have the same number.
#[tokio::test]
async fn delivered_bytes_are_those_that_the_sink_counted() {
    let counted = Arc::new(AtomicUsize::new(0));
    let count = counted.clone();
    let address = misbehaving(move |mut stream, number| {
        let count = count.clone();
        async move {
            if number == 0 {
                return accept_small(&mut stream).await;
            }
            // Two bodies on one connection, then it is closed: what it did must not be forgotten.
            let mut whole = 0;
            for last in [false, true] {
                let head = head(&mut stream).await;
                let mut body = vec![0; content_length(&head)];
                stream.read_exact(&mut body).await.unwrap();
                whole += head.len() + body.len();
                let close = if last { "Connection: close\r\n" } else { "" };
                let answer = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                if number == 3 {
                    // The last connection is never answered again, and so nothing is under way.
                    count.fetch_add(whole, Ordering::Relaxed);
                    return std::future::pending().await;
                }
            }
            count.fetch_add(whole, Ordering::Relaxed);
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    let flows = until(&mut load, "five bodies", |flows| {
        counted.load(Ordering::Relaxed) > 125_000_000 && flows.payload_bytes >= counted.load(Ordering::Relaxed) as u64
    })
    .await;
    // The third connection takes one body and then whatever fits into the buffers of a server that reads no more.
    let beyond = flows.payload_bytes - counted.load(Ordering::Relaxed) as u64;
    assert!(beyond < 25_000_000, "{beyond}");
}

#[tokio::test]
async fn every_byte_of_a_body_is_acknowledged_and_none_is_invented() {
    let counted = Arc::new(AtomicUsize::new(0));
    let count = counted.clone();
    let address = misbehaving(move |mut stream, number| {
        let count = count.clone();
        async move {
            if number == 0 {
                return accept_small(&mut stream).await;
            }
            let head = head(&mut stream).await;
            let mut body = vec![0; content_length(&head)];
            stream.read_exact(&mut body).await.unwrap();
            count.store(head.len() + body.len(), Ordering::Relaxed);
            // Never answered: the flow has nothing more to send.
            std::future::pending::<()>().await;
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1000), &server, &loopback()).unwrap();
    until(&mut load, "the whole body", |_| counted.load(Ordering::Relaxed) > 0).await;
    let sent = counted.load(Ordering::Relaxed) as u64;
    let flows = until(&mut load, "the last acknowledgement", |flows| flows.payload_bytes >= sent).await;
    assert_eq!(flows.payload_bytes, sent);
    // 1000 bytes a segment, 12 of them TCP's time stamp; the request's head and each chunk's end may be shorter.
    let least = sent.div_ceil(988);
    assert!((least..least + least / 50).contains(&flows.packets), "{} packets, {least} needed", flows.packets);
    assert_eq!(flows.ip_bytes, sent + flows.packets * 52);
}

#[tokio::test]
async fn the_segment_size_is_kept_in_both_directions() {
    let ours = Ours::start(Limits::default()).await;
    let server = ours.server().await;
    for direction in [Direction::Upload, Direction::Download] {
        let mut load = Load::start(&load(direction, 2, 536), &server, &loopback()).unwrap();
        let flows = until(&mut load, "a megabyte", |flows| flows.payload_bytes > 1_000_000).await;
        assert_eq!(load.segment_bytes(), Some(524), "{direction}");
        let mean = flows.ip_bytes as f64 / flows.packets as f64;
        assert!((570.0..=576.0).contains(&mean), "{direction}: {mean} bytes a packet");
    }
}

#[tokio::test]
async fn dropping_a_load_breaks_its_connections_off() {
    let (sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let address = misbehaving(move |mut stream, number| {
        let sender = sender.clone();
        async move {
            if number == 0 {
                return accept_small(&mut stream).await;
            }
            let mut buffer = vec![0; 1 << 16];
            let error = loop {
                match stream.read(&mut buffer).await {
                    Ok(0) => break None,
                    Ok(_) => {}
                    Err(error) => break Some(error.kind()),
                }
            };
            sender.send(error).unwrap();
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 2, 1460), &server, &loopback()).unwrap();
    until(&mut load, "a megabyte", |flows| flows.alive == 2 && flows.payload_bytes > 1_000_000).await;
    drop(load);
    for _ in 0..2 {
        let end = tokio::time::timeout(LIMIT, ended.recv()).await.unwrap().unwrap();
        assert_eq!(end, Some(std::io::ErrorKind::ConnectionReset), "a polite end would drain the queue first");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_halved() {
    let ours = Ours::start(Limits { body_bytes: 2_000_000, ..Limits::default() }).await;
    let server = ours.server().await;
    let mut load = Load::start(&load(Direction::Upload, 4, 1460), &server, &loopback()).unwrap();
    // 25 MB, 12.5, 6.25, 3.1, then 1.56.
    until(&mut load, "ten megabytes", |flows| flows.payload_bytes > 10_000_000 && flows.alive == 4).await;
    assert_eq!(load.trouble(), None);
    drop(load);
    assert!(ours.totals().await.received_bytes > 1_500_000);
}

#[tokio::test]
async fn a_server_that_finds_every_body_too_large_has_refused() {
    let ours = Ours::start(Limits { body_bytes: 10_000, ..Limits::default() }).await;
    let mut load = Load::start(&load(Direction::Upload, 2, 1460), &ours.server().await, &loopback()).unwrap();
    assert_eq!(trouble(&mut load).await, Trouble::ServerRefused { status: 413, retry_after_s: None });
    until(&mut load, "the end", |flows| flows.alive == 0).await;
}

#[tokio::test]
async fn retry_after_is_honoured_by_the_next_load_too() {
    let connections = Arc::new(AtomicUsize::new(0));
    let seen = connections.clone();
    let address = misbehaving(move |mut stream, number| {
        seen.store(number + 1, Ordering::Relaxed);
        async move {
            if number == 0 {
                return accept_small(&mut stream).await;
            }
            head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 429 No\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut first = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    assert_eq!(trouble(&mut first).await, Trouble::ServerRefused { status: 429, retry_after_s: Some(600) });
    assert_eq!(connections.load(Ordering::Relaxed), 2);
    let mut second = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    let Trouble::ServerRefused { status: 429, retry_after_s: Some(wait) } = trouble(&mut second).await else {
        panic!("not refused")
    };
    assert!((500..=600).contains(&wait), "{wait}");
    assert_eq!(connections.load(Ordering::Relaxed), 2, "left alone");
}

/// Many servers say no at once and close with the body unread, which resets the connection under the answer.
#[tokio::test]
async fn a_refusal_is_heard_before_the_reset_that_follows() {
    let address = misbehaving(|mut stream, number| async move {
        if number == 0 {
            return accept_small(&mut stream).await;
        }
        head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await.unwrap();
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    assert_eq!(trouble(&mut load).await, Trouble::ServerRefused { status: 403, retry_after_s: None });
}

#[tokio::test]
async fn a_connection_that_breaks_is_made_again_and_reported() {
    let address = misbehaving(|mut stream, number| async move {
        if number == 0 {
            return accept_small(&mut stream).await;
        }
        head(&mut stream).await;
        if number > 1 {
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    let said = trouble(&mut load).await;
    assert!(matches!(&said, Trouble::ServerLost { error } if !error.is_empty()), "{said:?}");
    until(&mut load, "the second connection", |flows| flows.payload_bytes > 5_000_000).await;
}

#[tokio::test]
async fn a_server_that_stops_reading_is_stalled() {
    let address = misbehaving(|mut stream, number| async move {
        accept_small(&mut stream).await;
        if number > 0 {
            std::future::pending::<()>().await;
        }
    })
    .await;
    let server = upload_to(address).await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    // The first body is read to its end, the second never.
    assert_eq!(trouble(&mut load).await, Trouble::Stalled);
    let flows = load.flows();
    assert!(flows.alive == 1 && flows.payload_bytes > 25_000_000, "{flows:?}");
    assert_eq!(load.trouble(), None, "said once");
}

#[tokio::test]
async fn a_server_that_is_gone_is_lost() {
    let ours = Ours::start(Limits::default()).await;
    let server = ours.server().await;
    ours.totals().await;
    let mut load = Load::start(&load(Direction::Upload, 1, 1460), &server, &loopback()).unwrap();
    let Trouble::ServerLost { error } = trouble(&mut load).await else { panic!("not lost") };
    assert!(error.contains("cannot connect to 127.0.0.1"), "{error}");
    assert_eq!(load.flows().alive, 0);
}

async fn refusal(server: Option<&str>, upload: Option<&str>) -> String {
    let choice = Choice::from_args(server, upload, None).unwrap();
    let error = Server::resolve(&choice, &loopback(), &Trust::default()).await.expect_err("should be refused");
    assert!(matches!(error, LineError::Refused { .. }), "{error:?}");
    let said = error.to_string();
    assert!(!said.contains('\n'), "one line: {said}");
    said
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_with_a_fix() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let said = refusal(Some(&format!("http://{nobody}")), None).await;
    assert!(said.contains("does not answer") && said.contains("--server"), "{said}");

    // No resolver is asked: a label is at most 63 bytes long.
    let name = "n".repeat(64);
    let said = refusal(Some(&format!("http://{name}.invalid")), None).await;
    assert!(said.contains("cannot be resolved") && said.contains("DNS"), "{said}");

    let ours = Ours::start(Limits::default()).await;
    let said = refusal(None, Some(&format!("https://{}/upload", ours.address))).await;
    if cfg!(feature = "tls") {
        assert!(said.contains("TLS") && said.contains("http://"), "{said}");
    } else {
        assert!(said.contains("cannot do HTTPS"), "{said}");
    }
    ours.totals().await;

    for (status, word) in
        [(301, "points to http://other/"), (403, "refuses an upload"), (404, "Check the URL"), (429, "in 7 s")]
    {
        let address = misbehaving(move |mut stream, _| async move {
            let length = content_length(&head(&mut stream).await);
            stream.read_exact(&mut vec![0; length]).await.unwrap();
            let answer = format!(
                "HTTP/1.1 {status} X\r\nLocation: http://other/\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        })
        .await;
        let said = refusal(None, Some(&format!("http://{address}/up"))).await;
        assert!(said.contains(word) && said.contains(&status.to_string()), "{said}");
        if status == 404 {
            let said = refusal(Some(&format!("http://{address}/")), None).await;
            assert!(said.contains("neither /.well-known/nq nor"), "{said}");
        }
    }

    let choice = Choice::Urls { upload: None, download: None };
    let server = Server::resolve(&choice, &loopback(), &Trust::default()).await.unwrap();
    let error = Load::start(&load(Direction::Download, 1, 1460), &server, &loopback()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("--download-url"), "{error}");
}

#[tokio::test]
async fn a_librespeed_directory_is_recognised() {
    let address = misbehaving(|mut stream, _| async move {
        loop {
            let head = head(&mut stream).await;
            let mut words = head.split(' ');
            let answer = match (words.next(), words.next()) {
                (Some("POST"), Some("/speed/backend/empty.php")) => {
                    stream.read_exact(&mut vec![0; content_length(&head)]).await.unwrap();
                    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
                }
                (Some("GET"), Some("/speed/backend/garbage.php?ckSize=24")) => {
                    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nnoise"
                }
                (Some(""), _) => return,
                _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            };
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let choice = Choice::from_args(Some(&format!("http://{address}/speed/")), None, None).unwrap();
    let server = Server::resolve(&choice, &loopback(), &Trust::default()).await.unwrap();
    assert!(server.said().starts_with("LibreSpeed"), "{}", server.said());
    for direction in [Direction::Upload, Direction::Download] {
        assert!(server.takes(direction));
    }
}

#[tokio::test]
async fn a_device_that_does_not_exist_is_named() {
    let ours = Ours::start(Limits::default()).await;
    let via = Via { device: Some("nosuchdev0".into()), ..Via::default() };
    let choice = Choice::from_args(Some(&format!("http://{}", ours.address)), None, None).unwrap();
    let said = Server::resolve(&choice, &via, &Trust::default()).await.unwrap_err().to_string();
    assert!(said.contains("nosuchdev0"), "{said}");
}
