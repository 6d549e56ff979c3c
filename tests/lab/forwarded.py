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
    origins = {origin: [row for row in rows if row["origin"] == origin] for origin in ("client", "forwarded", "local")}
    if judge.exit_code(directory) != 0 or not all(origins.values()):
        return [Check("measured", False, judge.last_line(directory / "stderr"))]
    means = {origin: {column: mean(row[column] for row in rows) for column in COLUMNS} for origin, rows in origins.items()}
    for row in rows:
        print("    " + "  ".join([f"{row['origin']:9}", *(f"{column} {row[column]:.1f}" for column in COLUMNS)]))
    checks = [Check("measured", True, f"{len(rows)} loads, CAKE {SHAPER_KBIT}, 4 flows")]
    for column in LIKE_A_CLIENT:
        client, forwarded, local = (means[origin][column] for origin in origins)
        words = f"client {client:.1f}, forwarded {forwarded:.1f}, local {local:.1f}"
        checks.append(Check(f"{column} like a client's", off(forwarded, client) <= WITHIN, words))
    unlike = [column for column in LIKE_A_CLIENT if off(means["local"][column], means["client"][column]) > WITHIN]
    return [*checks, Check("local load is not", bool(unlike), f"differs in {' and '.join(unlike) or 'nothing'}"), judge.put_back(directory)]


def off(value: float, truth: float) -> float:
    return abs(value / truth - 1) if truth else float("inf")


def tested(directory: Path) -> list[Check]:
    out = judge.read(directory / "stdout")
    summary = next((line for line in out.splitlines() if line.startswith("test result:")), "no result")
    failed = [line.strip() for line in out.split("failures:")[-1].splitlines() if line.startswith("    ")] if "failures:" in out else []
    skipped = [line for line in out.splitlines() if "skipped:" in line]
    return [Check("tests of the forwarder", judge.exit_code(directory) == 0 and not skipped, "; ".join([summary, *failed, *skipped]))]


JUDGES = {"compare": compared, "suite": tested}
