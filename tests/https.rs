//! HTTPS with a certificate authority of the test's own, in front of our plain server, as a user would set it up.
#![cfg(all(feature = "tls", feature = "server"))]

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use sqm_autotune::line::{self, Origin};
use sqm_autotune::router::load::Load;
use sqm_autotune::router::socket::Via;
use sqm_autotune::router::target::{Choice, Server};
use sqm_autotune::router::tls::Trust;
use sqm_autotune::server::{Bound, Limits};
use sqm_autotune::units::Direction;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

const LIMIT: Duration = Duration::from_secs(30);

/// A file that goes when the test does.
struct Pem(PathBuf);

impl Pem {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sqm-autotune-{}-{name}.pem", std::process::id()));
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        Self(path)
    }

    fn trust(&self) -> Trust {
        Trust { file: Some(self.0.clone()) }
    }
}

impl Drop for Pem {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A TLS front for `plain`, whose certificate for localhost ends with year `until`.
async fn front(issuer: &CertifiedIssuer<'static, KeyPair>, until: i32, plain: SocketAddr) -> u16 {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(until, 12, 31);
    let certificate = params.signed_by(&key, issuer).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(mut secure) = acceptor.accept(stream).await {
                    let mut plain = TcpStream::connect(plain).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut secure, &mut plain).await;
                }
            });
        }
    });
    port
}

async fn ours() -> SocketAddr {
    let bound = Bound::to("127.0.0.1:0".parse().unwrap(), Limits::default()).await.unwrap();
    let address = bound.address().unwrap();
    tokio::spawn(bound.run(std::future::pending()));
    address
}

fn choice(port: u16) -> Choice {
    let up = format!("https://localhost:{port}/upload");
    let down = format!("https://localhost:{port}/large");
    Choice::from_args(None, Some(&up), Some(&down)).unwrap()
}

#[tokio::test]
async fn both_directions_run_over_tls() {
    let issuer = authority("ours");
    let port = front(&issuer, 2099, ours().await).await;
    let pem = Pem::new("both", &issuer.pem());
    let server = Server::resolve(&choice(port), &Via::default(), &pem.trust()).await.unwrap();
    for direction in [Direction::Upload, Direction::Download] {
        let plan = line::Load { direction, flows: 2, mss: 1460, origin: Origin::Local };
        let mut load = Load::start(&plan, &server, &Via::default()).unwrap();
        let moving = async {
            while load.flows().payload_bytes < 5_000_000 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LIMIT, moving).await.expect("nothing moved");
        assert_eq!((load.flows().alive, load.trouble()), (2, None), "{direction}");
    }
}

async fn refusal(port: u16, trust: &Trust) -> String {
    Server::resolve(&choice(port), &Via::default(), trust).await.unwrap_err().to_string()
}

#[tokio::test]
async fn certificates_that_prove_nothing_are_refused_with_a_fix() {
    let (issuer, stranger) = (authority("ours"), authority("stranger"));
    let plain = ours().await;
    let port = front(&issuer, 2099, plain).await;
    let said = refusal(port, &Pem::new("stranger", &stranger.pem()).trust()).await;
    assert!(said.contains("issuer is unknown") && said.contains("--ca"), "{said}");

    let pem = Pem::new("expired", &issuer.pem());
    let expired = front(&issuer, 2024, plain).await;
    let said = refusal(expired, &pem.trust()).await;
    assert!(said.contains("not valid") && said.contains("clock"), "{said}");

    let wrong_name = Choice::from_args(None, Some(&format!("https://127.0.0.1:{port}/upload")), None).unwrap();
    let said = Server::resolve(&wrong_name, &Via::default(), &pem.trust()).await.unwrap_err().to_string();
    assert!(said.contains("not valid"), "{said}");

    let said = refusal(port, &Trust { file: Some("/nonexistent.pem".into()) }).await;
    assert!(said.contains("/nonexistent.pem") && said.contains("ca-bundle"), "{said}");
    let said = refusal(port, &Pem::new("empty", "no certificate\n").trust()).await;
    assert!(said.contains("none in it") && said.contains("ca-bundle"), "{said}");
}
