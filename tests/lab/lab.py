"""Plans the boots, runs them, prints what came of them. Started by `run`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tomllib
import unittest
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from itertools import cycle, product
from pathlib import Path

import apply
import forwarded
import judge
import kernel_tests
import overheads
from judge import Check, Link, Result
from machine import HERE, LAB, Boot, Job, Machine, Ran, boot_one
from scenario import Refused, Scenario, read

SCENARIOS = HERE / "scenarios"
USUAL = ("apply", "vdsl2-pppoe", "fibre-50", "docsis-like", "kernel-tests", "download-20", "put-back", "good-modem", "policer-6", "bad-input", "adsl-atm")  # what CI runs, the longest first
OWNERS = ("cake", "fq_codel", "default")  # what the router's owner has on wan before us
OWN = {module.NAME: module for module in (apply, kernel_tests, forwarded)}  # each plans and judges its boot itself
HANDLING = ("put-back", "bad-input", *OWN)
WHOLE = ("vdsl2-pppoe", "download-20")  # calibrated in both directions with every usual step; of the others only the upload, to save time
SETS = (overheads.NAME,)
STOPS = (("INT", "shaped"), ("TERM", "shaped"), ("PANIC", "shaped"), ("KILL", "shaped"), ("KILL", "unshaped"))
HANDLING_SCENARIO = "vdsl2-6"  # slow: emulating it costs little
LIMIT_S = 480  # a quiet machine with two processors takes half of it at most
RECORD = HERE / "RESULTS.md"
RECORD_HEAD = "# What the kernel lab measured\n\nWritten by `tests/lab/run --record …`; the README says what the columns are compared with.\n"
TRUTH_PERCENTS = ("95", "98.9", "101.7", "103.3")


def main() -> int:
    options = arguments()
    try:
        boots = plan(options)
    except Refused as refusal:
        print(f"lab: {refusal}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    boot_one()
    if options.prepare:
        return 0
    with ThreadPoolExecutor(options.parallel) as pool:
        machines = [Machine(boot) for boot in boots]
        work = [pool.submit(once, machine) for machine in machines]
        try:
            return collect(boots, work, options.record)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for machine in machines:
                machine.end()
            print("lab: stopped", file=sys.stderr)
            return 130


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/lab/run", description="Runs sqm-autotune on a real kernel, in a line that is known.")
    what = f"scenarios (a name in tests/lab/scenarios or a file), {', '.join((*SETS, *HANDLING))}; default: {' '.join(USUAL)}"
    parser.add_argument("what", nargs="*", help=what)
    parser.add_argument("--all", action="store_true", help="every scenario in tests/lab/scenarios, the set of overheads, the handling checks")
    truth = "no agent: print what the kernel does with four flows, unshaped and shaped (default scenario: measured-18)"
    parser.add_argument("--truth", action="store_true", help=truth)
    record = f"then write the tables into {RECORD.relative_to(HERE.parent.parent)}: the newest run of each scenario that target/lab has"
    parser.add_argument("--record", action="store_true", help=record)
    parser.add_argument("--binary", metavar="FILE", help="test this program instead of target/release/sqm-autotune")
    parser.add_argument("--parallel", type=int, default=os.cpu_count(), metavar="N", help="guests at a time (default: one a processor)")
    limit = f"seconds for one scenario; handling checks have twice as long (default: {LIMIT_S})"
    parser.add_argument("--limit", type=int, default=LIMIT_S, metavar="S", help=limit)
    parser.add_argument("--prepare", action="store_true", help="make all that a guest needs, and end")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    options = parser.parse_args()
    if options.list:
        for path in sorted(SCENARIOS.glob("*.toml")):
            print(f"{path.stem:14} {tomllib.loads(path.read_text()).get('about', '')}")
        sys.exit(0)
    return options


def plan(options: argparse.Namespace) -> list[Boot]:
    what = options.what
    if options.truth:
        return [truth_boot(find(name), 2 * options.limit) for name in what or ["measured-18"]]
    if options.all:
        what = [*HANDLING, *SETS, *sorted(path.stem for path in SCENARIOS.glob("*.toml"))]
    boots = []
    for name in what or USUAL:
        if name in HANDLING:
            boots.append(handling_boot(name, 2 * options.limit, bool(what)))
        elif name == overheads.NAME:
            boots += [link_boot(scenario, options.limit) for scenario in overheads.scenarios()]
        else:
            boots.append(calibration_boot(find(name), OWNERS[len(boots) % len(OWNERS)], options.limit))
    return boots


def find(name: str) -> Scenario:
    path = Path(name) if name.endswith(".toml") else SCENARIOS / f"{name}.toml"
    try:
        return read(path)
    except Refused as refusal:
        raise Refused(f"{name}: {refusal}") from refusal


def calibration_boot(scenario: Scenario, owner: str, limit_s: int) -> Boot:
    return Boot(scenario.name, scenario, (Job("calibration", "calibrate", (owner,)),), agent_arguments(scenario), max(limit_s, scenario.limit_s))


def link_boot(scenario: Scenario, limit_s: int) -> Boot:
    return Boot(scenario.name, scenario, (Job("link", "calibrate", ("default",)),), (*agent_arguments(scenario), "--steps", "link"), limit_s)


def handling_boot(name: str, limit_s: int, every: bool) -> Boot:
    """`every`: each way to stop with each kind of owner's queue; otherwise with one of them in turn, to save time."""
    if module := OWN.get(name):
        return module.boot(find(module.SCENARIO), limit_s)
    scenario = find(HANDLING_SCENARIO)
    if name == "bad-input":
        return Boot(name, scenario, tuple(Job(word, "bad", (word,)) for word in judge.BAD_INPUT), (), limit_s)
    stops = product(STOPS, OWNERS) if every else zip(STOPS, cycle(OWNERS))
    jobs = [Job("-".join((*stop, owner)), "stop", (*stop, owner)) for stop, owner in stops]
    jobs.append(Job("reader-gone", "reader_gone", (OWNERS[0],)))
    return Boot(name, scenario, tuple(jobs), (*agent_arguments(scenario), "--steps", "search"), limit_s)


def truth_boot(scenario: Scenario, limit_s: int) -> Boot:
    job = Job("truth", "truth", (str(scenario.upload.rate_kbit), *TRUTH_PERCENTS))
    return Boot(f"truth-{scenario.name}", scenario, (job,), (), limit_s)


def agent_arguments(scenario: Scenario) -> tuple[str, ...]:
    words = ["--line", "router", "--device", scenario.device, "--server", "http://10.3.0.2:8080", *direction(scenario), "--json", "--yes"]
    for reflector in scenario.reflectors:
        words += ["--reflector", reflector]
    if scenario.sync_up_kbit:
        words += ["--sync-up", str(scenario.sync_up_kbit)]
    if scenario.sync_down_kbit:
        words += ["--sync-down", str(scenario.sync_down_kbit)]
    return (*words, *step_arguments(scenario))


def step_arguments(scenario: Scenario) -> tuple[str, ...]:
    return ("--steps", scenario.steps) if scenario.steps else ()


def direction(scenario: Scenario) -> tuple[str, str]:
    return "--direction", "both" if scenario.name in WHOLE else "upload"


def once(machine: Machine) -> tuple[Ran, dict | str]:
    prediction: dict | str = "not asked for"
    if machine.boot.jobs[0].name == "calibration":
        prediction = predict(machine.boot.scenario)
    return machine.run(), prediction


def predict(scenario: Scenario) -> dict | str:
    """What the simulated line says of the same file."""
    command = ["nice", str(LAB / "bin" / "sqm-autotune"), "calibrate", "--line", f"sim:{scenario.path}", *direction(scenario), "--json", *step_arguments(scenario)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return "the simulated line took more than 120 s"
    except json.JSONDecodeError:
        return f"the simulated line gave no outcome (exit {done.returncode}): {done.stderr.strip()[-200:]}"


def collect(boots: list[Boot], work: list[Future], record: bool) -> int:
    """Prints each boot's checks as it ends, then the tables and the count."""
    results: list[Result] = []
    links: list[Link] = []
    checks: list[Check] = []
    print("\nthe lab itself")
    for check in own_tests():
        show(checks, "lab", check)
    for boot, future in zip(boots, work):
        ran, prediction = future.result()
        print(f"\n{boot.name} ({ran.seconds:.0f} s)", flush=True)
        if ran.trouble:
            show(checks, "boot", Check("complete", False, ran.trouble))
        for job in boot.jobs:
            directory = ran.directory / "results" / job.name
            if not (directory / "complete").exists():
                show(checks, job.name, Check("done", False, "not done"))
                continue
            for check in judged(ran, job, directory, prediction, results, links):
                show(checks, job.name, check)
    print("".join(f"\n{text}\n" for text in tables(results, links)), end="")
    keep([*results, *links])
    if record:
        blocks = (f"\n```\n{text}\n```\n" for text in tables(kept(Result), kept(Link)))
        RECORD.write_text(RECORD_HEAD + "".join(blocks))
    passed, failed, skipped = (sum(check.passed is verdict for check in checks) for verdict in (True, False, None))
    print(f"\n{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed or not passed else 0


def own_tests() -> list[Check]:
    """tests.py: that the lab refuses what it cannot do, and that its judgements can fail."""
    suite = unittest.defaultTestLoader.loadTestsFromName("tests")
    names = [test.id().rpartition(".")[2] for case in suite for test in case]
    outcome = unittest.TestResult()
    suite.run(outcome)
    failures = {test.id().rpartition(".")[2]: trace.strip().splitlines()[-1] for test, trace in outcome.failures + outcome.errors}
    return [Check("own test", name not in failures, f"{name} {failures.get(name, '')}".strip()) for name in names]


def judged(ran: Ran, job: Job, directory: Path, prediction: dict | str, results: list[Result], links: list[Link]) -> list[Check]:
    if job.kind == "calibrate":
        links += [link] if (link := judge.link(ran.boot.scenario, directory)) else []
    if job.name == "link":
        return judge.link_found(ran.boot.scenario, directory)
    if job.name == "calibration":
        result, checks = judge.calibration(ran.boot.scenario, directory, prediction, ran.boot.scenario.name in WHOLE)
        results.append(result)
        return checks
    if job.kind == "truth":
        print(truth_table(directory))
        return [Check("measured", judge.exit_code(directory) == 0, judge.last_line(directory / "stderr"))]
    judges = {"stop": judge.stopped, "reader_gone": judge.reader_gone, "bad": judge.bad_input}
    for module in OWN.values():
        judges |= module.JUDGES
    return judges[job.kind](directory)


def show(checks: list[Check], job: str, check: Check) -> None:
    checks.append(check)
    word = {True: "PASS", False: "FAIL", None: "SKIP"}[check.passed]
    print(f"  {word}  {job}: {check.name}: {check.text}", flush=True)


def table(results: list[Result]) -> str:
    rows = [("scenario", "fits", "recommended", "ratio", "grade", "trials", "load s", "MB", "simulated")]
    for r in results:
        numbers = [r.fits_kbit and f"{r.fits_kbit:.0f}", r.kbit, r.ratio and f"{r.ratio:.1%}", r.grades, r.trials]
        numbers += [r.load_seconds and f"{r.load_seconds:.0f}", r.megabytes and f"{r.megabytes:.0f}", r.predicted_kbit]
        rows.append((r.name, *("–" if n is None else str(n) for n in numbers)))
    return aligned(rows)


def tables(results: list[Result], links: list[Link]) -> list[str]:
    return ([table(results)] if results else []) + ([link_table(links)] if links else [])


def keep(rows: list[Result | Link]) -> None:
    for row in rows:
        (LAB / "out" / row.name / f"{type(row).__name__}.json").write_text(json.dumps(asdict(row)))


def kept(kind: type) -> list:
    return [kind(**json.loads(path.read_text())) for path in sorted((LAB / "out").glob(f"*/{kind.__name__}.json"))]


def link_table(links: list[Link]) -> str:
    rows = [("scenario", "truth", "found", "bytes", "between", "written")]
    rows += [(l.name, l.truth, l.layer, "–" if l.overhead is None else str(l.overhead), l.interval, l.written) for l in links]
    return aligned(rows)


def truth_table(directory: Path) -> str:
    keys = ("row", "probe_p50_ms", "probe_p95_ms", "ethernet_kbit", "packets_per_s", "bytes_per_packet")
    rows = [("trial", "ping p50", "p95", "Ethernet kbit/s", "packets/s", "bytes each")]
    for row in json.loads(judge.read(directory / "stdout") or "[]"):
        rows.append(tuple(str(row[key]) for key in keys))
    return aligned(rows)


def aligned(rows: list[tuple]) -> str:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


if __name__ == "__main__":
    sys.exit(main())
