//! For `smoke`: loads a server with uploads, as a calibration does, until its standard input ends.
//!
//!   upload URL [FILE]      FILE: the certificate authorities to trust
//!
//! The program for routers itself asks the kernel much that an emulator does not know.

use sqm_autotune::line::{self, LineError, Origin};
use sqm_autotune::router::load::Load;
use sqm_autotune::router::socket::Via;
use sqm_autotune::router::target::{Choice, Server};
use sqm_autotune::router::tls::Trust;
use sqm_autotune::units::Direction;
use std::process::ExitCode;
use tokio::sync::oneshot;

async fn upload(url: &str, trust: Trust, end: oneshot::Receiver<()>) -> Result<String, LineError> {
    let server = Server::resolve(&Choice::from_args(None, Some(url), None)?, &Via::default(), &trust).await?;
    let plan = line::Load { direction: Direction::Upload, flows: 2, mss: 1460, origin: Origin::Local };
    let load = Load::start(&plan, &server, &Via::default())?;
    let _ = end.await;
    drop(load);
    Ok(server.said().to_owned())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (url, file) = match words.as_slice() {
        [url] => (url, None),
        [url, file] => (url, Some(file.into())),
        _ => {
            eprintln!("upload: write: upload URL [FILE]");
            return ExitCode::from(2);
        }
    };
    let (over, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = over.send(());
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(upload(url, Trust { file }, end)) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("upload: {error}");
            ExitCode::FAILURE
        }
    }
}
