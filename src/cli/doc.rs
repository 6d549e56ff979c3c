//! What each command is for and which flags it knows: the help text and the parser read the same tables.

use std::fmt::Write;

pub struct CommandDoc {
    pub name: &'static str,
    /// For the list of commands.
    pub summary: &'static str,
    /// For its own help.
    pub about: &'static str,
    pub flags: &'static [&'static [Flag]],
}

pub struct Flag {
    pub name: &'static str,
    /// What follows it; empty for a switch.
    pub value: &'static str,
    pub about: &'static str,
}

const fn flag(name: &'static str, value: &'static str, about: &'static str) -> Flag {
    Flag { name, value, about }
}

pub const COMMANDS: [CommandDoc; 16] = [
    CommandDoc {
        name: "calibrate",
        summary: "find the CAKE settings for this line, by measurement",
        about: "Loads the line for a minute or two, finds the highest rates at which others on it do not have to\n\
                wait, and shows what it would write into /etc/config/sqm. The router's own shaping is put back,\n\
                however it ends.",
        flags: &[LINE, RESULT, CALIBRATION, ROUTER],
    },
    CommandDoc {
        name: "measure",
        summary: "grade the line as it is; changes nothing",
        about: "Compares the delay of the idle line with the delay while the upload is busy, with the shaping that\n\
                is there now.",
        flags: &[LINE, RESULT, ROUTER],
    },
    CommandDoc {
        name: "lines",
        summary: "list the simulated lines",
        about: "What --line sim:NAME can name.",
        flags: &[],
    },
    CommandDoc {
        name: "serve",
        summary: "be the server that takes the load, on a machine of your own",
        about: "Takes uploads and gives downloads over plain HTTP, for routers that calibrate against it.",
        flags: &[&[flag("listen", "ADDR:PORT", "where to listen (default: 0.0.0.0:8080)")]],
    },
    CommandDoc {
        name: "restore",
        summary: "put back what a killed run left on the router",
        about: "A calibration notes down what it changes. If it was killed or the power failed, this undoes it.\n\
                Without such notes it does nothing.",
        flags: &[TREE],
    },
    CommandDoc {
        name: "apply",
        summary: "write the settings of a calibration into /etc/config/sqm",
        about: "Shows the changes, writes them, restarts SQM on that device, and looks whether the kernel does what was\n\
                written and the line is not worse for it; else everything is put back. ID is an outcome of `history`,\n\
                or a file that `calibrate --json` has written (default: the last one with settings).",
        flags: &[WRITING, TREE, ROUTER],
    },
    CommandDoc {
        name: "revert",
        summary: "undo the last write, byte for byte",
        about: "Puts back what /etc/config/sqm was before the last `apply`, unless somebody has changed it since.",
        flags: &[TREE],
    },
    CommandDoc {
        name: "check",
        summary: "calibrate again if the line has changed, else say why not",
        about: "What cron and hotplug call. Loads and writes only where /etc/config/sqm-autotune allows it (option apply\n\
                auto), the change has lasted, and the window, the day's megabytes and a quiet line permit.",
        flags: &[FACTS],
    },
    CommandDoc {
        name: "status",
        summary: "what is set, what the modem says of it, and whether a calibration is due",
        about: "Changes nothing and loads nothing.",
        flags: &[SHOWN],
    },
    CommandDoc {
        name: "history",
        summary: "the last outcomes, or one of them in full",
        about: "The last twenty, on the router's RAM disk; with option keep_last the last one survives a restart.",
        flags: &[SHOWN],
    },
    CommandDoc {
        name: "report",
        summary: "everything a forum post needs, addresses and names taken out",
        about: "The status, the kind of link, /etc/config/sqm and the last calibration with its trials.",
        flags: &[SHOWN],
    },
    CommandDoc {
        name: "sync",
        summary: "the rates that the modem reports, and where they come from",
        about: "Asks the driver of the router's own DSL modem; a rate or a command in /etc/config/sqm-autotune\n\
                goes before it. It is an upper bound: many providers shape below it.",
        flags: &[FACTS],
    },
    CommandDoc {
        name: "link",
        summary: "the kind of link and its overhead, as far as the router knows",
        about: "Says what the overhead probably is before anything is measured, and from what that follows.",
        flags: &[FACTS],
    },
    CommandDoc {
        name: "doctor",
        summary: "what is wrong with the SQM configuration, and with what really runs",
        about: "Compares /etc/config/sqm with the router and with what the kernel runs. Changes nothing, sends nothing.\n\
                Each finding says where, what comes of it, and how to put it right.",
        flags: &[ROOT],
    },
    CommandDoc {
        name: "mtu",
        summary: "which MTU the WireGuard tunnels should have; changes nothing",
        about: "Works out what fits into the WAN's packets, with the arithmetic, for each WireGuard tunnel. Without\n\
                --root it also sends some pings of full size that may not be cut, to see what gets through.",
        flags: &[FACTS],
    },
    CommandDoc {
        name: "rpcd",
        summary: "what the LuCI page calls: list, or call METHOD with JSON on stdin",
        about: "Methods: status start cancel apply revert history outcome advice findings. start, apply and revert only\n\
                begin their work and return; status tells how it goes. An error is a member of the reply, with a code.\n\
                The options are for tests: the page cannot set them.",
        flags: &[TREE, PLUGIN],
    },
];

const ROOT: &[Flag] = &[
    flag("json", "", "the answer as JSON on stdout"),
    flag("root", "DIR", "a router's files and ubus replies in a directory, instead of this router"),
];

const FACTS: &[Flag] = &[
    flag("json", "", "the answer as JSON on stdout"),
    flag("interface", "NAME", "this WAN, by its name in /etc/config/network (default: the first)"),
    flag("device", "DEV", "this WAN, by its network device"),
    flag("root", "DIR", "a router's files and ubus replies in a directory, instead of this router"),
];

const LINE: &[Flag] = &[
    flag("line", "LINE", "router (the default on OpenWrt), sim:NAME, or sim:FILE.toml"),
    flag("direction", "WHICH", "upload, download or both (the default)"),
    flag("sync-up", "KBIT", "what the modem reports for the upload, in kbit/s"),
    flag("sync-down", "KBIT", "the same for the download"),
    flag("seed", "N", "simulated line: another roll of the dice"),
    flag("pace", "FACTOR", "simulated line: run in real time, FACTOR times as fast"),
];

const RESULT: &[Flag] = &[
    flag("json", "", "the result as JSON on stdout"),
    flag("max-mbytes", "N", "move no more than N megabytes; what has no room is left out, and said"),
];

const CALIBRATION: &[Flag] = &[
    flag("max-added-ms", "N", "the delay that still counts as clean, instead of the default"),
    flag("steps", "A,B", "some of link,confirm,search,target,download,verify (default: all but confirm)"),
    flag("dry-run", "", "show the settings, write nothing (the default)"),
    flag("apply", "", "write them and look whether the line is better, as `apply` does"),
    flag("yes", "", "do not ask before loading a real line"),
    flag("root", "DIR", "keep and write the result in a directory that looks like a router"),
];

const WRITING: &[Flag] = &[
    flag("dry-run", "", "show the changes, write nothing"),
    flag("yes", "", "do not ask before writing"),
    flag("json", "", "the changes and what came of them as JSON on stdout"),
];

const SHOWN: &[Flag] = &[
    flag("json", "", "the answer as JSON on stdout"),
    flag("root", "DIR", "a directory that looks like a router, instead of this router"),
];

const PLUGIN: &[Flag] = &[
    flag("line", "LINE", "calibrate this one: router or sim:NAME"),
    flag("seed", "N", "simulated line: another roll of the dice"),
    flag("pace", "FACTOR", "simulated line: run in real time, FACTOR times as fast"),
];

const TREE: &[Flag] = &[flag("root", "DIR", "a directory that looks like a router, instead of this router")];

const ROUTER: &[Flag] = &[
    flag("device", "DEV", "router: the device to shape (default: where the default route goes)"),
    flag("reflector", "ADDR", "router: who answers the pings; may be repeated"),
    flag("upload-url", "URL", "router: where uploads are sent"),
    flag("download-url", "URL", "router: where downloads come from"),
    flag("server", "URL", "router: a machine that runs `sqm-autotune serve`"),
    flag("ca", "FILE", "router: certificate authorities to trust with HTTPS (default: the system's)"),
];

impl CommandDoc {
    pub fn named(name: &str) -> Option<&'static Self> {
        COMMANDS.iter().find(|command| command.name == name)
    }

    pub fn flag(&self, name: &str) -> Option<&'static Flag> {
        self.all_flags().find(|flag| flag.name == name)
    }

    pub fn all_flags(&self) -> impl Iterator<Item = &'static Flag> + Clone + use<> {
        self.flags.iter().flat_map(|group| group.iter())
    }

    /// How many words without a dash may follow it.
    pub fn operands(&self) -> usize {
        match self.name {
            "apply" | "history" => 1,
            // The file that the kernel names, `call`, and the method.
            "rpcd" => 3,
            _ => 0,
        }
    }

    pub fn help(&self) -> String {
        let options = if self.flags.is_empty() { "" } else { " [OPTIONS]" };
        let operand = match self.operands() {
            0 => "",
            1 => " [ID]",
            _ => " list|call METHOD",
        };
        let mut text = format!("{}\n\nUsage: sqm-autotune {}{operand}{options}\n", self.about, self.name);
        if !self.flags.is_empty() {
            text.push_str("\nOptions:\n");
            for flag in self.all_flags() {
                let _ = writeln!(text, "  {:<24} {}", format!("--{} {}", flag.name, flag.value), flag.about);
            }
        }
        text
    }
}

pub fn overview() -> String {
    let mut text = String::from(
        "sqm-autotune finds the CAKE settings for your internet line by measuring it, so that a busy line no\n\
         longer makes everything else wait.\n\nUsage: sqm-autotune COMMAND [OPTIONS]\n\nCommands:\n",
    );
    for command in &COMMANDS {
        let _ = writeln!(text, "  {:<11} {}", command.name, command.summary);
    }
    text.push_str(
        "\nTry it without a router:\n  sqm-autotune calibrate --line sim:vdsl2-pppoe\n\n\
         More: sqm-autotune COMMAND --help, sqm-autotune --version\n\n\
         Exit: 0 done, 1 failed, 2 usage, 3 inconclusive, 4 refused before the start, 130 stopped\n",
    );
    text
}

/// What was probably meant: a name that begins so, or one of which at most a third of the letters are wrong.
pub fn closest<'a>(word: &str, mut known: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let near = known.clone().map(|name| (edits(word, name), name));
    let nearest = near.filter(|(edits, name)| *edits * 3 <= name.len().max(3)).min().map(|(_, name)| name);
    nearest.or_else(|| known.find(|name| word.len() >= 3 && name.starts_with(word)))
}

/// Letters to insert, drop or replace to make one word of the other.
fn edits(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_understood_and_a_strange_word_is_not() {
        let commands = || COMMANDS.iter().map(|command| command.name);
        assert_eq!(closest("calibrat", commands()), Some("calibrate"));
        assert_eq!(closest("mesure", commands()), Some("measure"));
        assert_eq!(closest("line", commands()), Some("lines"));
        assert_eq!(closest("sorcery", commands()), None);
        assert_eq!(closest("x", commands()), None);
        assert_eq!(closest("cal", commands()), Some("calibrate"));
        assert_eq!(edits("kitten", "sitting"), 3);
    }

    #[test]
    fn help_names_every_flag_and_fits_a_terminal() {
        for command in &COMMANDS {
            let help = command.help();
            for flag in command.all_flags() {
                assert!(help.contains(&format!("--{} ", flag.name)), "{} in\n{help}", flag.name);
            }
            assert!(help.lines().all(|line| line.chars().count() <= 105), "{help}");
        }
    }
}
