//! How a command ended, and the number a script sees.

use crate::calibration::Run;
use crate::calibration::outcome::Status;
use crate::line::LineError;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Done = 0,
    Failed = 1,
    Usage = 2,
    Inconclusive = 3,
    Refused = 4,
    Stopped = 130,
}

impl Exit {
    /// For a reader of JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Inconclusive => "inconclusive",
            Self::Refused => "refused",
            Self::Stopped => "stopped",
        }
    }

    pub fn of(run: &Run) -> Self {
        match (&run.error, run.outcome.outcome) {
            (Some(LineError::Stopped), _) => Self::Stopped,
            (Some(LineError::Refused { .. }), _) | (_, Status::Refused) => Self::Refused,
            (_, Status::Inconclusive) => Self::Inconclusive,
            (Some(_), _) | (_, Status::Failed) => Self::Failed,
            (None, Status::Tuned | Status::Unneeded | Status::Graded) => Self::Done,
        }
    }

    /// By the number that a process ended with.
    pub fn numbered(number: i32) -> Self {
        let all = [Self::Done, Self::Usage, Self::Inconclusive, Self::Refused, Self::Stopped];
        all.into_iter().find(|exit| *exit as i32 == number).unwrap_or(Self::Failed)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sample;

    #[test]
    fn every_ending_has_its_number() {
        let number = |status, error: Option<LineError>| {
            let mut outcome = sample::tuned();
            outcome.outcome = status;
            Exit::of(&Run { outcome, error }) as u8
        };
        assert_eq!(number(Status::Tuned, None), 0);
        assert_eq!(number(Status::Unneeded, None), 0);
        assert_eq!(number(Status::Graded, None), 0);
        assert_eq!(number(Status::Failed, None), 1);
        assert_eq!(number(Status::Failed, Some(LineError::failed("ping", "no route"))), 1);
        assert_eq!(number(Status::Inconclusive, None), 3);
        assert_eq!(number(Status::Inconclusive, Some(LineError::Disturbed { what: "qdisc".into() })), 3);
        assert_eq!(number(Status::Refused, Some(LineError::refused("no CAKE", "install it"))), 4);
        assert_eq!(number(Status::Failed, Some(LineError::Stopped)), 130);
    }
}
