//! Asks whether to go on.

use std::io::{BufRead, IsTerminal, Write};

/// On a terminal; elsewhere nobody is there to answer, and it goes on. So it does where there is no `question`.
pub fn agreed(question: impl FnOnce() -> Option<String>) -> bool {
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return true;
    }
    let Some(question) = question() else { return true };
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "{question} [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}
