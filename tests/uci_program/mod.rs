//! The real `uci`, built from the C source that the crate `libuci-sys` carries: what a router's own programs do with a file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const CRATE: &str = "libuci-sys@1.0.5";

/// The directory with the program, for a `PATH`.
pub fn directory() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uci");
        let program = directory.join("uci");
        if !program.exists() {
            build(&source(), &directory, &program);
        }
        directory
    })
}

/// `PATH` with the real `uci` before everything else.
pub fn path() -> String {
    format!("{}:{}", directory().display(), std::env::var("PATH").unwrap_or_default())
}

/// Fetched by cargo, not linked: its build script wants a C++ library that few have.
fn source() -> PathBuf {
    let cargo = || Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    let unpacked = || {
        let home = std::env::var("CARGO_HOME").map_or_else(
            |_| PathBuf::from(std::env::var("HOME").expect("a home directory")).join(".cargo"),
            PathBuf::from,
        );
        let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten();
        let name = CRATE.replace('@', "-");
        registries.filter_map(|entry| Some(entry.ok()?.path().join(&name))).find(|path| path.join("uci/cli.c").exists())
    };
    unpacked().unwrap_or_else(|| {
        let told = cargo().args(["info", "--quiet", CRATE]).current_dir(env!("CARGO_MANIFEST_DIR")).output();
        let told = told.expect("run cargo info");
        let why = String::from_utf8_lossy(&told.stderr);
        unpacked().unwrap_or_else(|| panic!("the source of uci cannot be had (cargo info {CRATE}): {why}"))
    })
}

fn build(source: &Path, directory: &Path, program: &Path) {
    let ours = directory.with_extension(format!("{}", std::process::id()));
    fs::create_dir_all(&ours).unwrap();
    fs::create_dir_all(directory).unwrap();
    fs::write(ours.join("uci_config.h"), "").unwrap();
    let built = ours.join("uci");
    let files = |part: &str, names: &[&str]| names.iter().map(|name| source.join(part).join(name)).collect::<Vec<_>>();
    // `<libubox/…>` is how uci names its neighbour.
    std::os::unix::fs::symlink(source.join("libubox"), ours.join("libubox")).unwrap();
    let compiled = Command::new("gcc")
        .args(["-O1", "-w", "-std=gnu99", "-DUCI_PREFIX=\"/usr\"", "-I"])
        .arg(&ours)
        .arg("-I")
        .arg(source.join("uci"))
        .arg("-o")
        .arg(&built)
        .args(files("uci", &["cli.c", "libuci.c", "file.c", "util.c", "delta.c", "parse.c", "blob.c"]))
        .args(files("libubox", &["blob.c", "blobmsg.c", "utils.c", "avl.c", "avl-cmp.c", "md5.c"]))
        .output()
        .expect("run gcc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    // Another test may have been quicker: one complete program is as good as the other.
    fs::rename(&built, program).unwrap();
    let _ = fs::remove_dir_all(&ours);
}
