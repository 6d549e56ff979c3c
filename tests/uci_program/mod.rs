//! The real `uci`, as `build` beside this makes it: what a router's own programs do with a file.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The directory with the program, for a `PATH`.
pub fn directory() -> &'static Path {
    static BUILT: OnceLock<std::path::PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uci");
        let program = directory.join("uci");
        if !program.exists() {
            let build = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/uci_program/build");
            let done = Command::new(build).arg(&program).output().expect("run tests/uci_program/build");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        }
        directory
    })
}

/// `PATH` with the real `uci` before everything else.
pub fn path() -> String {
    format!("{}:{}", directory().display(), std::env::var("PATH").unwrap_or_default())
}
