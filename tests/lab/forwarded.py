"""The forwarded load: that it behaves like a client of the LAN, behind a firewall like OpenWrt's, and that local load does not."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from statistics import mean

import judge
from judge import Check
from machine import HERE, LAB, Boot, Job
from scenario import Refused, Scenario

NAME = "forwarded"
SCENARIO = "measured-18"
SHAPER_KBIT, OVERHEAD = 17100, 44
WITHIN = 0.20  # of the real client
LIKE_A_CLIENT = ("retransmits", "queue_delay_ms")
COLUMNS = ("retransmits", "queue_delay_ms", "goodput_kbit", "drops", "srtt_ms")
ORIGINS = ("client", "forwarded", "local")


def boot(scenario: Scenario, limit_s: int) -> Boot:
    programs = {test: build(test) for test in ("forwarder_kernel", "forwarder_compare")}
    jobs = (
        Job("compare", "compare", (str(programs["forwarder_compare"]), str(SHAPER_KBIT), str(OVERHEAD))),
        Job("suite", "suite", (str(programs["forwarder_kernel"]),)),
    )
    return Boot(NAME, scenario, jobs, (), 2 * limit_s)


def build(test: str) -> Path:
    """One of the project's test programs, as a copy that a later build does not swap under a guest."""
    command = ["cargo", "test", "--locked", "--no-run", "--test", test, "--message-format", "json"]
    done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, check=False)
    made = [m for m in map(json.loads, done.stdout.splitlines()) if m.get("executable") and m["target"]["name"] == test]
    if done.returncode != 0 or not made:
        raise Refused(f"cargo cannot build the test {test}")
    copy = LAB / "bin" / test
    copy.unlink(missing_ok=True)
    return Path(shutil.copy(made[-1]["executable"], copy))


def compared(directory: Path) -> list[Check]:
    rows = [json.loads(line) for line in judge.read(directory / "stdout").splitlines() if line.startswith("{")]
    if judge.exit_code(directory) != 0 or not rows:
        return [Check("measured", False, judge.last_line(directory / "stderr"))]
    checks, unlike = [], []
    for flows in sorted({row["flows"] for row in rows}):
        print("\n".join(words(row) for row in rows if row["flows"] == flows))
        for column in LIKE_A_CLIENT:
            client, ours, local = (mean(row[column] for row in rows if (row["flows"], row["origin"]) == (flows, origin)) for origin in ORIGINS)
            text = f"client {client:.1f}, forwarded {ours:.1f}, local {local:.1f}"
            checks.append(Check(f"{column} of {flows} flows", off(ours, client) <= WITHIN, text))
            if off(local, client) > WITHIN:
                unlike.append(f"{column} of {flows} flows")
    return [*checks, Check("local load is another thing", bool(unlike), f"differs in: {', '.join(unlike) or 'nothing'}"), judge.put_back(directory)]


def words(row: dict) -> str:
    return "    " + "  ".join([f"{row['flows']:2} flows {row['origin']:9}", *(f"{column} {row[column]:.1f}" for column in COLUMNS)])


def off(value: float, truth: float) -> float:
    return abs(value / truth - 1) if truth else float("inf")


def tested(directory: Path) -> list[Check]:
    out = judge.read(directory / "stdout")
    summary = next((line for line in out.splitlines() if line.startswith("test result:")), "no result")
    failed = [line.strip() for line in out.split("failures:")[-1].splitlines() if line.startswith("    ")] if "failures:" in out else []
    skipped = [line for line in out.splitlines() if "skipped:" in line]
    return [Check("tests of the forwarder", judge.exit_code(directory) == 0 and not skipped, "; ".join([summary, *failed, *skipped]))]


JUDGES = {"compare": compared, "suite": tested}
