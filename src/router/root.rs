//! The root of a device: what was there before us, whether what is there now is ours, how to put back.

use super::attribute::{Malformed, Writer, attributes, u32_at};
use super::device;
use super::netlink::Socket;
use super::qdisc::{self, Handle, Qdisc};
use crate::line::LineError;
use serde::{Deserialize, Serialize};

/// The handle of every CAKE we set ("SQ"), by which we know it again. tc and the kernel count theirs up from 8000:.
pub const OURS: Handle = Handle(0x5351_0000);

/// Classless kinds that come back exactly as they were when the options they show are set again.
const REPEATABLE: [&str; 10] =
    ["cake", "cake_mq", "fq_codel", "codel", "fq", "sfq", "pfifo", "bfifo", "pfifo_head_drop", "pfifo_fast"];

/// What was at the root before us.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Before {
    /// What the kernel sets by itself when nobody sets anything.
    Default { kind: String },
    /// What somebody set, SQM for example.
    Set { kind: String, handle: u32, options: Vec<u8> },
}

/// What we did last (or were about to do).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    Shaped,
    Unshaped,
}

/// How the root stands to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    AsBefore,
    Ours,
    Foreign,
}

/// What [`put_back`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    PutBack,
    WasAsBefore,
    /// Somebody set something else meanwhile: theirs stays.
    SomebodyElses,
    /// The device went, and what was on it with it.
    DeviceGone,
}

impl Outcome {
    /// For people.
    pub fn said(self, before: &Before) -> String {
        match self {
            Self::PutBack => format!("put {before} back"),
            Self::WasAsBefore => format!("still has its {before}"),
            Self::SomebodyElses => "somebody has set another root qdisc since; it stays".into(),
            Self::DeviceGone => "is gone, nothing to put back".into(),
        }
    }
}

impl Before {
    /// Refuses what could not be put back exactly.
    pub fn of(root: Option<&Qdisc>, device: &str) -> Result<Self, LineError> {
        let Some(root) = root else {
            return Ok(Self::Default { kind: "noop".into() });
        };
        if root.handle == Handle::DEFAULT {
            return Ok(Self::Default { kind: root.kind.clone() });
        }
        let stop = "Stop what set it (for SQM: /etc/init.d/sqm stop) and try again";
        if root.handle == OURS {
            let problem = format!("{device} still has the {root} of an earlier run whose record is lost");
            let fix = format!("Delete it (tc qdisc del dev {device} root) and restart SQM if you use it");
            return Err(LineError::refused(problem, fix));
        }
        if let Some(part) = root.irreproducible {
            return Err(LineError::refused(
                format!("{device} has a {root} with {part}, which we could not put back"),
                stop,
            ));
        }
        if !REPEATABLE.contains(&root.kind.as_str()) {
            return Err(LineError::refused(
                format!("{device} has a {root}, which we could not put back exactly"),
                stop,
            ));
        }
        Ok(Self::Set { kind: root.kind.clone(), handle: root.handle.0, options: root.options.clone() })
    }

    /// Whether the root is what it was.
    pub fn is(&self, root: Option<&Qdisc>) -> bool {
        match self {
            Self::Default { .. } => is_default(root),
            Self::Set { kind, handle, options } => {
                root.is_some_and(|root| root.kind == *kind && root.handle.0 == *handle && root.options == *options)
            }
        }
    }

    fn standing(&self, root: Option<&Qdisc>, done: Done) -> Standing {
        if self.is(root) {
            Standing::AsBefore
        } else if root.is_some_and(|root| root.handle == OURS) || (done == Done::Unshaped && is_default(root)) {
            Standing::Ours
        } else {
            Standing::Foreign
        }
    }
}

impl std::fmt::Display for Before {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default { kind } => write!(f, "{kind} (the kernel's default)"),
            Self::Set { kind, handle, .. } => write!(f, "{kind} {}", Handle(*handle)),
        }
    }
}

pub fn is_default(root: Option<&Qdisc>) -> bool {
    root.is_none_or(|root| root.handle == Handle::DEFAULT)
}

/// Puts back what was at the root, unless somebody else has set something meanwhile; reads back what came of it.
pub fn put_back(
    socket: &mut Socket,
    name: &str,
    index: i32,
    before: &Before,
    done: Done,
) -> Result<Outcome, LineError> {
    if device::by_index(socket, index)?.is_none() {
        return Ok(Outcome::DeviceGone);
    }
    let root = qdisc::root(socket, index)?;
    match before.standing(root.as_ref(), done) {
        Standing::AsBefore => return Ok(Outcome::WasAsBefore),
        Standing::Foreign => return Ok(Outcome::SomebodyElses),
        Standing::Ours => {}
    }
    match before {
        Before::Default { .. } => qdisc::delete_root(socket, name, index, OURS)?,
        Before::Set { kind, handle, options } => {
            let malformed = |error| LineError::failed(format!("put back {before} on {name}"), error);
            let options = repeated(kind, options).map_err(malformed)?;
            qdisc::replace_root(socket, name, index, kind, Handle(*handle), &options)?;
        }
    }
    let root = qdisc::root(socket, index)?;
    if before.is(root.as_ref()) {
        return Ok(Outcome::PutBack);
    }
    let found = root.map_or_else(|| "nothing".into(), |root| root.to_string());
    Err(LineError::failed(
        format!("put back {before} on {name}"),
        format!("the kernel made {found} with other options of it"),
    ))
}

/// The options to set so that the kernel shows these again.
fn repeated(kind: &str, shown: &[u8]) -> Result<Vec<u8>, Malformed> {
    // TARGET, INTERVAL and CE_THRESHOLD of TCA_CODEL_* and TCA_FQ_CODEL_*.
    match kind {
        "codel" => repeated_codel(shown, &[1, 3, 5]),
        "fq_codel" => repeated_codel(shown, &[1, 3, 7]),
        "sfq" => repeated_sfq(shown),
        _ => Ok(shown.to_vec()),
    }
}

/// `struct tc_sfq_qopt`: quantum, perturb, limit, divisor, flows. A limit that is told cuts the flows down to it
/// (`sfq_change`), so more flows than limit are those of a limit that was not told: 0 leaves it at its default.
fn repeated_sfq(shown: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut options = shown.to_vec();
    if u32_at(shown, 16)? > u32_at(shown, 8)? {
        options[8..12].fill(0);
    }
    Ok(options)
}

fn repeated_codel(shown: &[u8], times: &[u16]) -> Result<Vec<u8>, Malformed> {
    let mut writer = Writer::default();
    for attribute in attributes(shown) {
        let attribute = attribute?;
        writer = if times.contains(&attribute.kind) {
            writer.u32(attribute.kind, codel_told(attribute.u32()?))
        } else {
            writer.bytes(attribute.kind, attribute.payload)
        };
    }
    Ok(writer.finish())
}

/// CoDel keeps times in units of 1024 ns, rounded down, and shows them in microseconds, rounded down again: told 5000 it
/// shows 4999, told 4999 it shows 4998. This is what to tell it so that it shows the same again.
fn codel_told(shown: u32) -> u32 {
    (shown..=shown.saturating_add(2)).find(|told| codel_shows(*told) == shown).unwrap_or(shown)
}

/// `codel_change` and `codel_time_to_us` (include/net/codel.h).
fn codel_shows(told: u32) -> u32 {
    let kept = (u64::from(told) * 1000) >> 10;
    ((kept << 10) / 1000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(kind: &str, major: u32) -> Qdisc {
        Qdisc { kind: kind.into(), handle: Handle(major << 16), parent: Handle::ROOT, ..Qdisc::default() }
    }

    fn before(kind: &str, major: u32) -> Before {
        Before::of(Some(&root(kind, major)), "eth0").unwrap()
    }

    #[test]
    fn what_the_kernel_sets_by_itself_is_a_default_of_any_kind() {
        for kind in ["noqueue", "mq", "fq_codel", "pfifo_fast"] {
            assert_eq!(before(kind, 0), Before::Default { kind: kind.into() });
        }
        assert_eq!(Before::of(None, "eth0"), Ok(Before::Default { kind: "noop".into() }));
    }

    #[test]
    fn what_cannot_be_put_back_is_refused_with_what_to_do() {
        let stab = Qdisc { irreproducible: Some("a size table (stab)"), ..root("fq_codel", 1) };
        for root in [root("htb", 1), root("prio", 1), root("mq", 1), root("tbf", 0x8001), stab, root("cake", 0x5351)] {
            let error = Before::of(Some(&root), "eth0").unwrap_err();
            assert!(
                matches!(&error, LineError::Refused { problem, fix } if problem.contains("eth0") && !fix.is_empty())
            );
        }
    }

    #[test]
    fn only_what_we_did_is_undone() {
        let (ours, theirs, default) = (root("cake", 0x5351), root("cake", 0x8001), root("fq_codel", 0));
        let newer = root("cake", 0x8007);
        let cases = [
            (before("cake", 0x8001), Some(&ours), Done::Shaped, Standing::Ours),
            (before("cake", 0x8001), Some(&theirs), Done::Shaped, Standing::AsBefore),
            (before("cake", 0x8001), Some(&newer), Done::Shaped, Standing::Foreign),
            // We took theirs away …
            (before("cake", 0x8001), Some(&default), Done::Unshaped, Standing::Ours),
            (before("cake", 0x8001), None, Done::Unshaped, Standing::Ours),
            // … or somebody took ours away.
            (before("cake", 0x8001), Some(&default), Done::Shaped, Standing::Foreign),
            // Killed before the change that was announced.
            (before("cake", 0x8001), Some(&ours), Done::Unshaped, Standing::Ours),
            (before("fq_codel", 0), Some(&default), Done::Unshaped, Standing::AsBefore),
            (before("fq_codel", 0), Some(&default), Done::Shaped, Standing::AsBefore),
            (before("fq_codel", 0), Some(&theirs), Done::Shaped, Standing::Foreign),
        ];
        for (number, (before, root, done, standing)) in cases.into_iter().enumerate() {
            assert_eq!(before.standing(root, done), standing, "case {number}");
        }
    }

    #[test]
    fn codels_times_survive_being_shown_and_told_again() {
        for told in (1..200_000).chain([1_000_000, 4_000_000_000]) {
            let shown = codel_shows(told);
            assert_eq!(codel_shows(codel_told(shown)), shown, "told {told}");
        }
        let shown = Writer::default().u32(1, 4999).u32(3, 99_999).u32(2, 4999).finish();
        let told = Writer::default().u32(1, 5000).u32(3, 100_000).u32(2, 4999).finish();
        assert_eq!(repeated("fq_codel", &shown).unwrap(), told);
        assert_eq!(repeated("cake", &shown).unwrap(), shown);
    }

    #[test]
    fn an_sfq_whose_limit_was_never_told_is_not_told_one() {
        let options = |limit: u32, flows: u32| [1514, 10, limit, 256, flows].map(u32::to_ne_bytes).concat();
        assert_eq!(repeated("sfq", &options(127, 128)).unwrap(), options(0, 128));
        assert_eq!(repeated("sfq", &options(127, 127)).unwrap(), options(127, 127));
        assert!(repeated("sfq", &[0; 19]).is_err());
    }
}
