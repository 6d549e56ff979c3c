"""Compares what a guest left behind with the truth. Reads files, decides, changes nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from scenario import Scenario, Side, wire_bytes

FITS_AT_LEAST, FITS_AT_MOST = 0.95, 0.99
PREDICTION_WITHIN = 0.03
# A download's shaper leaves five per cent, or a packet of each flow in each round trip.
DOWNLOAD_AT_LEAST, DOWNLOAD_MARGIN, FLOWS = 0.95, 0.05, 4
GRADE_A_PLUS_MS = 5.0
OVERHEAD_WITHIN = 2
# A calibration that cannot be: the exit codes that are right, and what the one line must speak of.
BAD_INPUT = {
    "no-reflector": ((3, 4), r"reflector"),
    "server-refuses": ((1, 4), r"server|10\.3\.0\.2"),
    "server-silent": ((1, 4), r"server|10\.8\.0\.1"),
    "no-cake": ((4,), r"(?i)cake"),
    "no-privileges": ((4,), r"(?i)root|privilege|CAP_NET|permi"),
    "no-device": ((1, 2, 4), r"nosuch0"),
    "offloaded": ((4,), r"flow_offloading_hw='0'"),
    "other-owner": ((4,), r"cake-autorate"),
}
PEAK_KILOBYTES = 12 * 1024 # a router with 128 MB gives a calibration no more
PANIC_EXIT, PANIC_WORDS = 1, "a bug in this program"
OWNERS_CAKE = "8a1:"


@dataclass(frozen=True)
class Check:
    """`passed` is None where the check could not be made: skipped, and `text` says why."""

    name: str
    passed: bool | None
    text: str


@dataclass(frozen=True)
class Result:
    """One line of the summary table."""

    name: str
    fits_kbit: float | None
    kbit: int | None
    grades: str
    trials: int | None
    load_seconds: float | None
    megabytes: float | None
    predicted_kbit: int | None

    @property
    def ratio(self) -> float | None:
        return self.kbit / self.fits_kbit if self.kbit and self.fits_kbit else None


@dataclass(frozen=True)
class Link:
    """What was found of a line's overhead and cells."""

    name: str
    truth: str
    layer: str
    overhead: int | None
    interval: str
    written: str


def calibration(truth: Scenario, job: Path, prediction: dict | str, whole: bool = False) -> tuple[Result, list[Check]]:
    """The whole judgement of one calibration. `prediction`: the simulated line's outcome, or why there is none.
    `whole`: the download was calibrated too."""
    outcome = read_outcome(job)
    if isinstance(outcome, str):
        return Result(truth.name, None, None, "", None, None, None, None), [Check("outcome", False, outcome), put_back(job)]
    kbit = (outcome["upload"] or {}).get("kbit")
    link, latency, cost = (outcome[member] or {} for member in ("link", "latency", "cost"))
    before, after = latency.get("grade_before"), latency.get("grade_after")
    fits = truth.upload.fits_kbit(truth.mtu, link.get("write_overhead") or 0, link.get("write_mpu") or 0, link.get("write_layer") or "none")
    predicted = None if isinstance(prediction, str) else (prediction["upload"] or {}).get("kbit")
    result = Result(
        name=truth.name,
        fits_kbit=fits,
        kbit=kbit,
        grades=f"{before or '?'} → {after or '?'}",
        trials=len(outcome["trials"] or []),
        load_seconds=cost.get("load_seconds"),
        megabytes=(cost.get("upload_bytes", 0) + cost.get("download_bytes", 0)) / 1e6,
        predicted_kbit=predicted,
    )
    checks = [Check("exit", exit_code(job) == 0, f"exit {exit_code(job)}"), memory(job)]
    if unneeded(truth.upload, truth.mtu):
        checks.append(Check("outcome", outcome["outcome"] == "unneeded", told(outcome)))
        checks.append(Check("grade", before == "A+", f"unshaped {before}"))
    else:
        ratio = result.ratio or 0
        checks.append(Check("outcome", outcome["outcome"] == "tuned", told(outcome)))
        checks.append(Check("fits", FITS_AT_LEAST <= ratio <= FITS_AT_MOST, f"{kbit} is {ratio:.1%} of the {fits:.0f} kbit/s that fit"))
        checks.append(Check("grade", after == best_grade(truth), f"{result.grades}"))
        checks.append(link_right(truth, link))
    if truth.target_ms:
        target = outcome.get("target") or {}
        checks.append(Check("target", target.get("target_ms") == truth.target_ms, f"{target.get('target_ms')} ms: {target.get('why')}"))
    if truth.upload.policer_burst_kb:
        checks.append(Check("policer", any(doubt["code"] == "policer" for doubt in outcome["doubts"] or []), "the doubt is told"))
    if truth.pppoe:
        checks.append(session(truth, job, outcome))
    if whole:
        checks += downloaded(truth, outcome, prediction)
    checks += [predicts(outcome, prediction), put_back(job)]
    return result, checks


def memory(job: Path) -> Check:
    peak = int(read(job / "peak") or 0)
    return Check("memory", 0 < peak <= PEAK_KILOBYTES, f"{peak} kB at most")


def downloaded(truth: Scenario, outcome: dict, prediction: dict | str) -> list[Check]:
    """What was found for the download: the rate that the rule of the margin allows, and that both directions at once are fine."""
    link, kbit, why = outcome["link"], outcome["download"].get("kbit") or 0, outcome["download"].get("why")
    fits = truth.download.fits_kbit(truth.mtu, link["write_overhead"], link["write_mpu"], link["write_layer"])
    top = fits - max(DOWNLOAD_MARGIN * fits, 8 * 1500 * FLOWS / outcome["latency"]["idle"]["p50"])
    both = outcome["latency"].get("grade_both")
    if unneeded(truth.download, truth.mtu):
        rate = Check("download", outcome["download"].get("kbit") == 0 and bool(why), f"{outcome['download'].get('kbit')}: {why}")
    else:
        share = kbit / top
        rate = Check("download", DOWNLOAD_AT_LEAST <= share <= 1, f"{kbit} is {share:.1%} of {top:.0f}, what fits ({fits:.0f}) less the margin; {why}")
    return [
        rate,
        Check("both at once", both in ("A+", "A"), f"grade {both}, {outcome['latency'].get('both')}"),
        predicts(outcome, prediction, "download"),
    ]


def link(truth: Scenario, job: Path) -> Link | None:
    """For the table."""
    outcome = read_outcome(job)
    if isinstance(outcome, str):
        return None
    found, upload = outcome["link"], truth.upload
    return Link(
        name=truth.name,
        truth=f"{upload.overhead} {'atm' if upload.cell == 'atm' else 'frames'}",
        layer=found["layer"] if found["source"] == "measured" else "not measured",
        overhead=found["overhead"] if found["source"] == "measured" else None,
        interval=f"{found['overhead_low']}–{found['overhead_high']}" if found["source"] == "measured" else "",
        written=f"{found['write_overhead']} {found['write_layer']}",
    )


def link_found(truth: Scenario, job: Path) -> list[Check]:
    """A calibration that was to find the link and nothing else."""
    outcome = read_outcome(job)
    if isinstance(outcome, str):
        return [Check("outcome", False, outcome), put_back(job)]
    return [Check("exit", exit_code(job) == 0, f"exit {exit_code(job)}"), link_right(truth, outcome["link"]), put_back(job)]


def link_right(truth: Scenario, link: dict) -> Check:
    """Frames: within two bytes. Cells: as many for a full-size packet. A policer shows no overhead: it must not be claimed."""
    upload = truth.upload
    if upload.policer_burst_kb:
        return Check("link", link["source"] != "measured", f"{link['source']}")
    model = "atm" if link["layer"] == "atm" else "none"
    text = f"{link['layer']} {link['overhead']} ({link['overhead_low']} to {link['overhead_high']}), {upload.cell} {upload.overhead} in truth"
    if link["source"] != "measured" or model != upload.cell:
        return Check("link", False, f"{link['source']}: {text}")
    if model == "atm":
        return Check("link", wire_bytes(truth.mtu, link["overhead"], 0, "atm") == upload.wire_bytes(truth.mtu), text)
    return Check("link", abs(link["overhead"] - upload.overhead) <= OVERHEAD_WITHIN, text)


def session(truth: Scenario, job: Path, outcome: dict) -> Check:
    """Over PPPoE: segments fit the session, and what does not bind to its device gets nowhere, so everything of ours did bind."""
    sizes = {trial["mss"] + 40 for trial in outcome["trials"] if trial.get("mss") and trial["step"] != "link"}
    lost = "100% packet loss" in read(job / "unbound")
    text = f"packets of {', '.join(map(str, sorted(sizes)))} bytes; without the session's device {'nothing answers' if lost else 'there is an answer'}"
    return Check("session", sizes == {truth.mtu} and lost, text)


def unneeded(side: Side, mtu: int) -> bool:
    """A queue that cannot hold a noticeable delay is not worth shaping."""
    full_ms = side.queue_packets(mtu) * side.wire_bytes(mtu) * 8 / side.rate_kbit
    return not side.policer_burst_kb and full_ms < GRADE_A_PLUS_MS


def best_grade(truth: Scenario) -> str:
    """A+, unless two full packets ahead of a probe already take longer."""
    return "A+" if 2 * truth.upload.wire_bytes(truth.mtu) * 8 / truth.upload.rate_kbit < GRADE_A_PLUS_MS else "A"


def predicts(outcome: dict, prediction: dict | str, direction: str = "upload") -> Check:
    name = "prediction" if direction == "upload" else f"prediction of the {direction}"
    if isinstance(prediction, str):
        return Check(name, False, prediction)
    mine, simulated = ((o[direction] or {}).get("kbit") for o in (outcome, prediction))
    if not mine or not simulated:
        same = outcome["outcome"] == prediction["outcome"] and mine == simulated
        return Check(name, same, f"simulated: {prediction['outcome']}, {simulated}; kernel: {outcome['outcome']}, {mine}")
    apart = abs(mine / simulated - 1)
    return Check(name, apart <= PREDICTION_WITHIN, f"simulated {simulated} kbit/s, {apart:.1%} apart")


def put_back(job: Path) -> Check:
    """What `tc qdisc show` says is what it said before, and nothing else of the agent's is left on the router."""
    if not (job / "after.rest").exists():
        return Check("put back", False, "not looked at: the job did not end")
    before, after = (json.loads((job / f"{word}.qdisc").read_text() or "[]") for word in ("before", "after"))
    if before != after:
        return Check("put back", False, f"queues were {named(before)} and are {named(after)}")
    was, now = ((job / f"{word}.rest").read_text().splitlines() for word in ("before", "after"))
    if was != now:
        new, gone = [l for l in now if l not in was], [l for l in was if l not in now]
        return Check("put back", False, f"left behind: {new[:3]}; gone: {gone[:3]}")
    return Check("put back", True, named([q for q in before if q["dev"].endswith("wan")]))


def named(queues: list) -> str:
    return ", ".join(f"{q.get('dev', 'wan')}:{q['kind']} {q['handle']}" for q in queues if q.get("dev") != "lo")


def stopped(job: Path) -> list[Check]:
    """A calibration that did not come to its end: it was caught in the act, ended as it should, and all is as before."""
    how, moment = job.name.split("-")[:2]
    code, last = exit_code(job), last_line(job / "stderr")
    during = [q for q in json.loads(read(job / "during") or "[]") if q.get("root")]
    cakes = [q["handle"] for q in during if q["kind"] == "cake"]
    caught = bool(cakes) and OWNERS_CAKE not in cakes if moment == "shaped" else not cakes
    checks = [Check("caught", caught, f"while wan had {named(during)}")]
    if how == "KILL":
        checks.append(Check("restore", read(job / "restore.exit").strip() == "0", last_line(job / "restore.stderr")))
    elif how == "PANIC" and code == 0:
        checks.append(Check("panic", None, "the program did not stumble: it is linked statically"))
    elif how == "PANIC":
        checks.append(Check("panic", code == PANIC_EXIT and PANIC_WORDS in read(job / "stderr"), f"exit {code}: {last}"))
    else:
        checks.append(Check("exit", code == 130, f"exit {code}: {last}"))
    return [*checks, put_back(job)]


def reader_gone(job: Path) -> list[Check]:
    return [put_back(job)]


def bad_input(job: Path) -> list[Check]:
    codes, pattern = BAD_INPUT[job.name]
    words = [line for line in read(job / "stderr").splitlines() if line.strip()]
    code, last = exit_code(job), words[-1] if words else ""
    fine = bool(re.search(pattern, last)) and not any("panicked" in line or "Traceback" in line for line in words)
    return [
        Check("exit", code in codes, f"exit {code}, {' or '.join(map(str, codes))} expected"),
        Check("one line", fine, last or "no word on stderr"),
        put_back(job),
    ]


def read_outcome(job: Path) -> dict | str:
    try:
        outcome = json.loads(read(job / "stdout"))
        missing = {"outcome", "upload", "link", "latency", "cost", "trials"} - outcome.keys()
        return f"no {', '.join(sorted(missing))} in the outcome" if missing else outcome
    except (json.JSONDecodeError, AttributeError):
        return f"no outcome (exit {exit_code(job)}): {last_line(job / 'stderr')}"


def told(outcome: dict) -> str:
    return outcome["outcome"] + (f": {outcome['reason']}" if outcome.get("reason") else "")


def exit_code(job: Path) -> int | None:
    text = read(job / "exit").strip()
    return int(text) if text else None


def last_line(path: Path) -> str:
    lines = read(path).strip().splitlines()
    return lines[-1] if lines else "(no word)"


def read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
