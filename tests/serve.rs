//! Our own server, spoken to in plain bytes.
#![cfg(feature = "server")]

use sqm_autotune::server::{Bound, Limits, Totals, serve};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const LIMIT: Duration = Duration::from_secs(30);

struct Running {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    done: JoinHandle<Totals>,
}

async fn start(limits: Limits) -> Running {
    let bound = Bound::to("127.0.0.1:0".parse().unwrap(), limits).await.unwrap();
    let address = bound.address().unwrap();
    let (stop, stopped) = oneshot::channel();
    let done = tokio::spawn(bound.run(async {
        let _ = stopped.await;
    }));
    Running { address, stop, done }
}

impl Running {
    /// Sends a request that ends its connection, and gives the whole answer.
    async fn ask(&self, request: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{request} HTTP/1.1\r\nHost: load.test:8080\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
        rest(&mut stream).await
    }

    async fn get(&self, path: &str) -> String {
        self.ask(&format!("GET {path}"), &[]).await
    }

    async fn end(self) -> Totals {
        self.stop.send(()).unwrap();
        tokio::time::timeout(LIMIT, self.done).await.expect("does not stop").unwrap()
    }
}

/// All that still comes, as far as it comes: a connection that is broken off just ends.
async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(LIMIT, read).await.expect("no end");
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {answer:?}"))
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn uploads_are_counted_and_forgotten() {
    let server = start(Limits::default()).await;
    for request in ["POST /upload", "PUT /anything", "POST /__up", "POST /backend/empty.php?r=0.5"] {
        assert_eq!(status(&server.ask(request, &vec![7; 100_000]).await), 200, "{request}");
    }
    let totals = server.end().await;
    assert_eq!(totals, Totals { connections: 4, refused: 0, received_bytes: 400_000, sent_bytes: 0 });
}

#[tokio::test]
async fn downloads_have_the_length_that_was_asked_for() {
    let server = start(Limits { body_bytes: 3 * 1024 * 1024, ..Limits::default() }).await;
    for (path, length) in [
        ("/__down?bytes=123456", 123_456),
        ("/large", 3 * 1024 * 1024),
        ("/small", 1),
        ("/backend/garbage.php?ckSize=2", 2 * 1024 * 1024),
        ("/backend/empty.php", 0),
    ] {
        let answer = server.get(path).await;
        assert_eq!((status(&answer), header(&answer, "content-length")), (200, Some(&*length.to_string())), "{path}");
    }
    assert_eq!(server.end().await.sent_bytes, 123_456 + 5 * 1024 * 1024 + 1);
}

#[tokio::test]
async fn it_says_what_it_is() {
    let server = start(Limits::default()).await;
    assert!(server.get("/").await.contains("a load server for calibrating home routers"));
    let answer = server.get("/.well-known/nq").await;
    let (_, json) = answer.split_once("\r\n\r\n").unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["urls"]["upload_url"], "http://load.test:8080/upload");
    assert_eq!(json["urls"]["large_download_url"], "http://load.test:8080/large");
    assert_eq!(server.end().await.refused, 0);
}

#[tokio::test]
async fn what_it_does_not_have_is_refused_clearly() {
    let server = start(Limits { body_bytes: 1000, ..Limits::default() }).await;
    for (request, body, expected) in [
        ("GET /nothing", 0, 404),
        ("DELETE /upload", 0, 405),
        ("GET /__down?bytes=1001", 0, 403),
        ("GET /backend/garbage.php", 0, 403),
        ("POST /upload", 1001, 413),
        ("POST /upload", 5_000_000, 413),
    ] {
        assert_eq!(status(&server.ask(request, &vec![7; body]).await), expected, "{request} {body}");
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"POST /upload HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n").await.unwrap();
    stream.write_all(&[7; 1001]).await.unwrap();
    stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(status(&rest(&mut stream).await), 413, "without a length, once it is too long");
    assert_eq!(server.end().await.refused, 7);
}

#[tokio::test]
async fn a_client_that_has_had_its_share_is_told_when_to_come_back() {
    let server = start(Limits { bytes_per_client: 10_000, ..Limits::default() }).await;
    assert_eq!(status(&server.ask("POST /upload", &[7; 6_000]).await), 200);
    let answer = server.ask("POST /upload", &[7; 6_000]).await;
    assert_eq!(status(&answer), 429);
    let answer = server.get("/small").await;
    assert_eq!(status(&answer), 429);
    let wait: u64 = header(&answer, "retry-after").unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    assert!(answer.contains("all the bytes it may"), "{answer}");
    server.end().await;
}

#[tokio::test]
async fn a_download_ends_where_the_share_does() {
    let server = start(Limits { bytes_per_client: 500_000, ..Limits::default() }).await;
    let answer = server.get("/__down?bytes=50000000").await;
    assert_eq!(status(&answer), 200);
    let sent = server.end().await.sent_bytes;
    assert!((500_000..600_000).contains(&sent), "{sent}");
}

#[tokio::test]
async fn connections_are_limited_for_each_client_and_for_all() {
    for (limits, expected) in [
        (Limits { connections_per_client: 2, ..Limits::default() }, 429),
        (Limits { connections: 2, ..Limits::default() }, 503),
    ] {
        let server = start(limits).await;
        let mut held = Vec::new();
        for _ in 0..2 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            // An answer proves that the connection is counted; it stays open.
            stream.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
            held.push(stream);
        }
        let answer = server.get("/small").await;
        assert_eq!((status(&answer), header(&answer, "retry-after")), (expected, Some("5")));
        drop(held);
        let freed = async { while status(&server.get("/small").await) != 200 {} };
        tokio::time::timeout(LIMIT, freed).await.expect("places are not given back");
        server.end().await;
    }
}

#[tokio::test]
async fn who_says_or_reads_nothing_is_dropped() {
    let server =
        start(Limits { request_time: Duration::from_millis(200), connections_per_client: 1, ..Limits::default() })
            .await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(rest(&mut silent).await, "");

    drop(silent);

    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nonly so much").await.unwrap();
    assert_eq!(status(&rest(&mut slow).await), 408);
    drop(slow);

    let deaf = loop {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut start = [0; 12];
        stream.read_exact(&mut start).await.unwrap();
        // Not yet, as long as the slow one's place is not given back.
        if start == *b"HTTP/1.1 200" {
            break stream;
        }
    };
    // It reads nothing until the server has given up and its place is free again.
    let patience = async { while status(&server.get("/small").await) != 200 {} };
    tokio::time::timeout(LIMIT, patience).await.expect("still waited for");
    drop(deaf);
    server.end().await;
}

#[tokio::test]
async fn it_stops_though_clients_hold_on() {
    let server = start(Limits::default()).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /small HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(idle.read(&mut [0; 1024]).await.unwrap() > 0);
    let mut busy = TcpStream::connect(server.address).await.unwrap();
    busy.write_all(b"POST /upload HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nonly so much").await.unwrap();
    let address = server.address;
    assert!(server.end().await.connections >= 1);
    assert!(TcpStream::connect(address).await.is_err(), "the port is free again");
}

#[tokio::test]
async fn a_port_in_use_is_an_error() {
    let server = start(Limits::default()).await;
    let error = serve(server.address, Limits::default(), std::future::pending()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    server.end().await;
}
