"""The agent writes what it has found: the file byte by byte, CAKE in the kernel, undoing, SIGKILL, and a day of `check`."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import judge
from judge import Check
from machine import HERE, LAB, Boot, Job
from scenario import Refused, Scenario, read

NAME = "apply"
SCENARIO = "vdsl2-6"
DEVICE, IFB = "wan", "ifb4wan"
LOWER_KBIT, LOWER_SYNC = 4922, 5000  # as guest/apply has them
BEFORE_DROP, WINDOW = "1 16:00", ("2 03:00", "2 06:00")
LEFT = ["/etc/config/network", "/etc/config/sqm", "/etc/config/sqm-autotune"]
# What an outcome writes into this owner's queue, in the order of writing.
OPTIONS = ("upload", "linklayer", "overhead", "linklayer_advanced", "tcMPU", "linklayer_adaptation_mechanism")


def boot(scenario: Scenario, limit_s: int) -> Boot:
    built = subprocess.run([HERE.parent / "uci_program" / "build", LAB / "bin" / "uci"], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise Refused(f"the real uci cannot be built: {built.stderr.strip()[-200:]}")
    jobs = (
        Job("written", "written"),
        Job("worse", "worse"),
        Job("killed-searching", "broken_off", ("searching",)),
        Job("killed-looking", "broken_off", ("looking",)),
        Job("day", "day"),
    )
    return Boot(NAME, scenario, jobs, (), 2 * limit_s)


def written(job: Path) -> list[Check]:
    outcome = told(job / "apply.stdout")
    checks = [ended(job, "apply", 0), bytes_written(job, "apply", outcome), follows(job, "apply"), calls(job, "apply", ["stop wan", "start wan"])]
    checks.append(Check("enabled", judge.read(job / "apply.boot").strip() == "enabled", "SQM starts at boot"))
    checks += [ended(job, "again", 0), calls(job, "again", ["stop wan", "start wan"]), unchanged(job, "again", "apply")]
    checks += [ended(job, "revert", 0), put_back(job, "revert"), calls(job, "revert", ["stop wan", "start wan"] * 2)]
    return [*checks, ended(job, "nothing", 1), put_back(job, "nothing")]


def worse(job: Path) -> list[Check]:
    reason = re.search(r"made the line worse \((.*?)\)", judge.read(job / "apply.stderr"))
    return [
        ended(job, "apply", 1),
        Check("reason", reason is not None, reason[1] if reason else judge.last_line(job / "apply.stderr")),
        put_back(job, "apply"),
        calls(job, "apply", ["stop wan", "start wan"] * 2),
    ]


def broken_off(job: Path) -> list[Check]:
    before, during = (judge.read(job / f"{word}.sqm") for word in ("before", "during"))
    if job.name.endswith("searching"):
        handles = {queue["handle"] for queue in queues(job, "before", DEVICE)}
        caught = before == during and bool(queues(job, "during", DEVICE)) and not handles & {q["handle"] for q in queues(job, "during", DEVICE) if q.get("root")}
    else:
        caught = before != during and "/etc/sqm-autotune/begun.json" in judge.read(job / "during.files")
    checks = [Check("caught", caught, f"{'the file was the old one' if before == during else 'the file was the new one'}, {kernel(job, 'during')['upload']}")]
    checks += [ended(job, "restore", 0), put_back(job, "restore"), ended(job, "again", 0)]
    return [*checks, Check("nothing more", "nothing to put back" in judge.read(job / "again.stderr"), judge.last_line(job / "again.stderr"))]


def day(job: Path) -> list[Check]:
    truth = read(HERE / "scenarios" / f"{SCENARIO}.toml")
    rows = [json.loads(line) for line in judge.read(job / "day.jsonl").splitlines()]
    for row in rows:
        row["wan"] = ((row["answer"] or {}).get("wans") or [{}])[0]
    if len(rows) < 100:
        return [Check("events", False, f"{len(rows)} checks")]
    before, after = ([row for row in rows if (row["at"] < BEFORE_DROP) is early] for early in (True, False))
    runs = [row for row in rows if row["wan"].get("written") or row["wan"].get("outcome")]
    late = [row for row in after if row["at"] > WINDOW[1]]
    retuned = queue(judge.read(job / "retuned.sqm"))
    lower = replace(truth.upload, rate_kbit=LOWER_KBIT)
    fits = lower.fits_kbit(truth.mtu, int(retuned.get("overhead", 0)), int(retuned.get("tcMPU", 0)), retuned.get("linklayer", "none"))
    ratio = int(retuned.get("upload", 0)) / fits
    idle = [row for row in before if "13:" in row["at"]]
    return [
        ended(job, "apply", 0),
        Check("exit", all(row["exit"] == 0 for row in rows), f"{len(rows)} checks ended with {sorted({row['exit'] for row in rows})}"),
        quiet("before the drop", idle),
        Check("no run for a training", not any(row in runs for row in before), f"runs before the drop: {[row['at'] for row in runs if row in before]}"),
        Check("one run", len(runs) == 1 and runs[0]["wan"]["written"], "; ".join(f"{row['at']}: {row['wan'].get('why')}" for row in runs) or why_not(after)),
        Check("in the window", all(WINDOW[0] <= row["at"] <= WINDOW[1] for row in runs) and bool(runs), f"{[row['at'] for row in runs]}"),
        quiet("after the run", late),
        healed(job, before),
        Check("fits", judge.FITS_AT_LEAST <= ratio <= judge.FITS_AT_MOST, f"{retuned.get('upload')} is {ratio:.1%} of the {fits:.0f} kbit/s that fit now"),
        follows(job, "after"),
    ]


def why_not(rows: list[dict]) -> str:
    return "none: " + "; ".join(f"{row['at']}: {row['wan'].get('why')}" for row in rows if row["at"] < WINDOW[1])


def quiet(name: str, rows: list[dict]) -> Check:
    """Events that mean nothing: no write, not even to memory, and SQM is told nothing."""
    seen = {(row["calls"], row["file"], row["memory"]) for row in rows}
    acted = [row["at"] for row in rows if row["wan"].get("due") is not False]
    return Check(f"nothing written {name}", len(rows) >= 50 and len(seen) == 1 and not acted, f"{len(rows)} checks; states of file, memory and SQM: {len(seen)}; acted: {acted}")


def healed(job: Path, rows: list[dict]) -> Check:
    """CAKE was taken away from under SQM: it comes back, by one stop and start."""
    told = sorted({row["calls"] for row in rows if "15:0" in row["at"]})
    fine = follows(job, "healed", fed=False)
    return Check("CAKE comes back", fine.passed and told[-1:] == [told[0] + 2], f"calls of run.sh {told}; {fine.text}")


def ended(job: Path, word: str, code: int) -> Check:
    is_code = judge.read(job / f"{word}.exit").strip()
    return Check(f"{word} ends", is_code == str(code), f"exit {is_code or 'none'}: {judge.last_line(job / f'{word}.stderr')}")


def calls(job: Path, word: str, wanted: list[str]) -> Check:
    made = judge.read(job / f"{word}.calls").splitlines()
    return Check(f"SQM at {word}", made == wanted, f"run.sh was told: {', '.join(made) or 'nothing'}")


def told(path: Path) -> dict:
    try:
        return json.loads(judge.read(path))
    except json.JSONDecodeError:
        return {}


def bytes_written(job: Path, word: str, outcome: dict) -> Check:
    if not outcome:
        return Check("file", False, "there is no outcome")
    wanted, now = expected(judge.read(job / "before.sqm"), outcome), judge.read(job / f"{word}.sqm")
    different = [line for line in now.splitlines() if line not in wanted.splitlines()] or "other order"
    return Check("file", now == wanted, f"{len(now)} bytes as they should be" if now == wanted else f"not as it should be: {different}")


def expected(before: str, outcome: dict) -> str:
    """The owner's file with our options of our queue, as this uci writes it: what is set goes to the end."""
    link = outcome["link"]
    values = (outcome["upload"]["kbit"], "atm" if link["write_layer"] == "atm" else "ethernet", link["write_overhead"], 1, link["write_mpu"], "default")
    head, _, ours = before.rstrip("\n").rpartition("config queue\n")
    kept = [line for line in ours.splitlines() if line.split()[1] not in OPTIONS]
    return "\n".join([f"{head}config queue", *kept, *(f"\toption {option} '{value}'" for option, value in zip(OPTIONS, values)), "", ""])


def queue(text: str) -> dict[str, str]:
    """The options of the device's queue."""
    for section in text.split("config queue"):
        options = dict(re.findall(r"^\toption (\w+) '(.*)'$", section, re.MULTILINE))
        if options.get("interface") == DEVICE:
            return options
    return {}


def queues(job: Path, word: str, device: str) -> list[dict]:
    return [q for q in json.loads(judge.read(job / f"{word}.qdisc") or "[]") if q.get("dev") == device]


def kernel(job: Path, word: str) -> dict:
    """What shapes, as the file would say it, and whether it is fed."""
    shown = {}
    for way, device in (("upload", DEVICE), ("download", IFB)):
        root = next((q for q in queues(job, word, device) if q.get("root")), None)
        shown[way] = cake(root["options"]) if root and root["kind"] == "cake" else root and root["kind"]
        shown[f"{way} packets"] = root["packets"] if root else 0
    shown["redirect"] = f"Redirect to device {IFB}" in judge.read(job / f"{word}.filter")
    return shown


def cake(options: dict) -> dict:
    bandwidth = options["bandwidth"]
    return {
        "kbit": bandwidth if isinstance(bandwidth, str) else round(bandwidth * 8 / 1000),
        "overhead": options.get("overhead"),
        "mpu": options.get("mpu", 0),
        "atm": options.get("atm", "noatm"),
        "rtt_ms": options["rtt"] // 1000,
        "tins": options["diffserv"],
    }


def follows(job: Path, word: str, fed: bool = True) -> Check:
    """CAKE in the kernel is what the file says, in both directions; and packets go through it."""
    says, shown = queue(judge.read(job / f"{word}.sqm")), kernel(job, word)
    shaped = says.get("linklayer", "none") != "none"
    for way in ("upload", "download"):
        wanted = {
            "kbit": int(says.get(way, -1)),
            "overhead": int(says.get("overhead", 0)) if shaped else 0,
            "mpu": int(says.get("tcMPU", 0)) if shaped else 0,
            "atm": "atm" if says.get("linklayer") == "atm" else "noatm",
            "rtt_ms": 100,
            # What comes in is told apart only where the owner says so (squash_ingress).
            "tins": "diffserv3" if says.get("script") == "layer_cake.qos" and way == "upload" else "besteffort",
        }
        if wanted["kbit"] == 0 and way == "download":
            if shown["redirect"]:
                return Check(f"kernel at {word}", False, "the file says no download, and it is redirected")
        elif shown[way] != wanted:
            return Check(f"kernel at {word}", False, f"{way}: {shown[way]}, and the file says {wanted}")
        elif way == "download" and not shown["redirect"]:
            return Check(f"kernel at {word}", False, "no filter feeds the IFB")
        elif fed and shown[f"{way} packets"] == 0:
            return Check(f"kernel at {word}", False, f"no packet went through the {way}'s queue")
    return Check(f"kernel at {word}", True, f"{shown['upload']}, {shown['download']}, packets {shown['upload packets']} and {shown['download packets']}")


def put_back(job: Path, word: str) -> Check:
    """The owner's bytes, the owner's CAKE, SQM as little enabled as before, and no file of ours but what is for the next run."""
    name = f"put back at {word}"
    if judge.read(job / "before.sqm") != judge.read(job / f"{word}.sqm") or not judge.read(job / f"{word}.sqm"):
        return Check(name, False, "the file is not the owner's")
    was, now = ({k: v for k, v in kernel(job, when).items() if "packets" not in k} for when in ("before", word))
    if was != now or not was["redirect"]:
        return Check(name, False, f"the kernel had {was} and has {now}")
    if judge.read(job / "before.boot") != judge.read(job / f"{word}.boot"):
        return Check(name, False, f"SQM is {judge.read(job / f'{word}.boot').strip()} at boot")
    new = [file for file in judge.read(job / f"{word}.files").splitlines() if file not in LEFT and not file.startswith("/run/")]
    return Check(name, not new, f"left behind: {new}" if new else f"{now}")


def unchanged(job: Path, word: str, since: str) -> Check:
    same = all(judge.read(job / f"{word}.{part}") == judge.read(job / f"{since}.{part}") != "" for part in ("sqm", "calls"))
    return Check(f"nothing new at {word}", same, judge.last_line(job / f"{word}.stdout"))


JUDGES = {"written": written, "worse": worse, "broken_off": broken_off, "day": day}
