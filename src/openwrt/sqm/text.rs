//! A change list as people read it.

use super::{ChangeList, FILE};
use std::fmt;

impl fmt::Display for ChangeList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.new { "a new queue" } else { "the queue" };
        writeln!(f, "/etc/config/{FILE}, {whose} {} ({})", self.section, self.device)?;
        if self.is_empty() {
            writeln!(f, "  nothing to change: it is all there already")?;
        }
        let widest = self.changes.iter().map(|change| change.option.len()).max().unwrap_or(0);
        for change in &self.changes {
            let shown =
                |value: &Option<String>| value.as_ref().map_or_else(|| "(none)".into(), |text| format!("'{text}'"));
            writeln!(f, "  {:widest$}  {} -> {}", change.option, shown(&change.old), shown(&change.new))?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  note: {note}"))
    }
}
