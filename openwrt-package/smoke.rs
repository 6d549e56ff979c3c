//! For the script `smoke`: what the program for routers cannot do in an emulator, or not at all.
//!
//!   upload URL [FILE]      loads a server with uploads, as a calibration does, until its standard input ends; FILE: the
//!                          certificate authorities to trust. A whole calibration asks the kernel much that an emulator
//!                          does not know.
//!   anything else          with the feature `sim` the program itself, which then has simulated lines

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
        [what, url] if what == "upload" => (url, None),
        [what, url, file] if what == "upload" => (url, Some(file.into())),
        // Without lines to simulate it would only be the shipped program once more, and long to link.
        #[cfg(feature = "sim")]
        _ => return sqm_autotune::cli::main(),
        #[cfg(not(feature = "sim"))]
        _ => {
            eprintln!("smoke: write: smoke upload URL [FILE]");
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
