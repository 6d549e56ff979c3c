//! The router's log, for what happens while nobody looks at a terminal.

use super::words::clean;
use std::ffi::CString;

pub fn warn(text: &str) {
    let Ok(text) = CString::new(clean(text)) else { return };
    // SAFETY: all three are strings that outlive the calls; the format takes exactly one string.
    unsafe {
        libc::openlog(c"sqm-autotune".as_ptr(), libc::LOG_PID, libc::LOG_DAEMON);
        libc::syslog(libc::LOG_WARNING, c"%s".as_ptr(), text.as_ptr());
        libc::closelog();
    }
}
