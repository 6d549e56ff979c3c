"""The forwarded load: that it behaves like a client of the LAN, behind a firewall like OpenWrt's, and that local load does not."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

import judge
import kernel_tests
from judge import Check
from machine import Boot, Job
from scenario import Scenario

NAME = "forwarded"
SCENARIO = "measured-18"
SHAPER_KBIT, OVERHEAD = 17100, 44
WITHIN = 0.20  # of the real client
LIKE_A_CLIENT = ("retransmits", "queue_delay_ms")
COLUMNS = ("retransmits", "queue_delay_ms", "goodput_kbit", "drops", "srtt_ms")
ORIGINS = ("client", "forwarded", "local")


def boot(scenario: Scenario, limit_s: int) -> Boot:
    job = Job("compare", "compare", (str(kernel_tests.build("forwarder_compare")), str(SHAPER_KBIT), str(OVERHEAD)))
    return Boot(NAME, scenario, (job,), (), 2 * limit_s)


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


JUDGES = {"compare": compared}
