//! HTTPS: whom to trust, and in words what went wrong.

use super::http::Stream;
use crate::line::LineError;
use std::path::PathBuf;
use tokio::net::TcpStream;

/// Where the certificate authorities come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// A PEM file named by the user. `None`: the system's.
    pub file: Option<PathBuf>,
}

/// What a failed handshake means for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TlsError {
    pub problem: String,
    pub fix: &'static str,
}

#[cfg(feature = "tls")]
pub(crate) use secure::Client;

#[cfg(not(feature = "tls"))]
pub(crate) use plain::Client;

#[cfg(feature = "tls")]
mod secure {
    use super::{LineError, Stream, TcpStream, TlsError, Trust};
    use rustls::crypto::{CryptoProvider, KeyProvider};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
    use rustls::sign::SigningKey;
    use rustls::{CertificateError, CipherSuite, ClientConfig, RootCertStore};
    use std::io;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::SystemTime;
    use tokio_rustls::TlsConnector;

    /// OpenWrt's `ca-bundle` and Debian's, then OpenSSL's own place, which OpenWrt links to the first.
    const SYSTEM_FILES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"];

    /// 2025-01-01: a router's clock that shows less has not been set since it was switched on.
    const CLOCK_IS_SET: u64 = 1_735_689_600;

    const NO_ROOTS_FIX: &str = "Install the package ca-bundle, or name a file with --ca, or use an http:// URL";

    /// A TLS client; clones share their session tickets, which spares a weak processor most of the next handshakes.
    #[derive(Clone, Debug)]
    pub(crate) struct Client(Arc<ClientConfig>);

    impl Client {
        pub fn new(trust: &Trust) -> Result<Self, LineError> {
            let system = || SYSTEM_FILES.iter().map(Path::new).find(|file| file.exists());
            let Some(file) = trust.file.as_deref().or_else(system) else {
                return Err(LineError::refused(
                    "there are no certificate authorities to check HTTPS with",
                    NO_ROOTS_FIX,
                ));
            };
            let roots = read_roots(file)?;
            let config = ClientConfig::builder_with_provider(Arc::new(provider()))
                .with_safe_default_protocol_versions()
                .map_err(|error| LineError::failed("set up TLS", error))?;
            let mut config = config.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            Ok(Self(Arc::new(config)))
        }

        pub async fn connect(&self, host: &str, tcp: TcpStream) -> Result<Stream, TlsError> {
            let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
            let name = ServerName::try_from(bare.to_owned()).map_err(|error| TlsError {
                problem: format!("{bare} is no name that a certificate could have ({error})"),
                fix: "Use the server's name, or an http:// URL",
            })?;
            match TlsConnector::from(self.0.clone()).connect(name, tcp).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(explain(&error, SystemTime::now())),
            }
        }
    }

    /// ring, with ChaCha20 first: routers have no AES instructions (155 against 86 Mbit/s under emulation).
    fn provider() -> CryptoProvider {
        let mut provider = CryptoProvider { key_provider: &NoKeys, ..rustls::crypto::ring::default_provider() };
        provider.cipher_suites.sort_by_key(|suite| {
            !matches!(
                suite.suite(),
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
                    | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
                    | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
            )
        });
        provider
    }

    /// No server gets a signature of ours, so that the program needs no code for signing.
    #[derive(Debug)]
    struct NoKeys;

    impl KeyProvider for NoKeys {
        fn load_private_key(&self, _: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
            Err(rustls::Error::General("this program has no key of its own".to_owned()))
        }
    }

    fn read_roots(file: &Path) -> Result<RootCertStore, LineError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            LineError::refused(
                format!("cannot read certificate authorities from {} ({error})", file.display()),
                NO_ROOTS_FIX,
            )
        };
        let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unreadable(&error))?;
        let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&error))?;
        let mut roots = RootCertStore::empty();
        let (_, ignored) = roots.add_parsable_certificates(certificates);
        if ignored > 0 {
            log::debug!("{ignored} certificates in {} are not usable", file.display());
        }
        if roots.is_empty() {
            return Err(unreadable(&"there are none in it"));
        }
        Ok(roots)
    }

    fn explain(error: &io::Error, clock: SystemTime) -> TlsError {
        use CertificateError::{BadSignature, Expired, ExpiredContext, NotValidYet, NotValidYetContext, UnknownIssuer};
        let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::InvalidCertificate(certificate)) = tls else {
            return TlsError { problem: error.to_string(), fix: "Check the URL; a server without TLS takes http://" };
        };
        let seconds = clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        match certificate {
            NotValidYet | NotValidYetContext { .. } | Expired | ExpiredContext { .. } if seconds < CLOCK_IS_SET => {
                TlsError {
                    problem: "the router's clock is wrong, so that no certificate looks valid".to_owned(),
                    fix: "Set the clock (ntpd), then try again",
                }
            }
            UnknownIssuer | BadSignature => TlsError {
                problem: "the certificate's issuer is unknown here".to_owned(),
                fix: "Name the file with the issuer's certificate with --ca, or update the package ca-bundle",
            },
            other => TlsError {
                problem: format!("the certificate is not valid: {other}"),
                fix: "Check the URL and the router's clock",
            },
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use std::time::Duration;

        fn explained(certificate: CertificateError, clock: u64) -> String {
            let error = io::Error::new(io::ErrorKind::InvalidData, rustls::Error::InvalidCertificate(certificate));
            explain(&error, SystemTime::UNIX_EPOCH + Duration::from_secs(clock)).problem
        }

        #[test]
        fn a_clock_that_was_never_set_is_named_as_the_cause() {
            assert!(explained(CertificateError::NotValidYet, 86_400).contains("clock is wrong"));
            assert!(explained(CertificateError::Expired, 86_400).contains("clock is wrong"));
            assert!(!explained(CertificateError::Expired, CLOCK_IS_SET).contains("clock"));
            assert!(explained(CertificateError::UnknownIssuer, 86_400).contains("issuer"));
        }

        #[test]
        fn chacha20_comes_first() {
            let suites: Vec<_> = provider().cipher_suites.iter().map(rustls::SupportedCipherSuite::suite).collect();
            assert_eq!(suites[0], CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
            assert!(suites.contains(&CipherSuite::TLS13_AES_128_GCM_SHA256));
        }
    }
}

#[cfg(not(feature = "tls"))]
mod plain {
    use super::{LineError, Stream, TcpStream, TlsError, Trust};

    /// Nobody ever has one: [`Client::new`] refuses.
    #[derive(Clone, Debug)]
    pub(crate) struct Client;

    const PROBLEM: &str = "this build cannot do HTTPS";
    const FIX: &str = "Use an http:// URL, or a build with the feature tls";

    impl Client {
        pub fn new(_: &Trust) -> Result<Self, LineError> {
            Err(LineError::refused(PROBLEM, FIX))
        }

        #[expect(clippy::unused_async, reason = "as the other Client has it")]
        pub async fn connect(&self, _: &str, _: TcpStream) -> Result<Stream, TlsError> {
            Err(TlsError { problem: PROBLEM.to_owned(), fix: FIX })
        }
    }
}
