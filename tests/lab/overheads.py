"""The set of overheads: a line for each kind of accounting that is usual, to see which of them the link step finds."""

from __future__ import annotations

import tomllib
from pathlib import Path

from scenario import Scenario, parse

NAME = "overheads"
FRAMES = (18, 22, 26, 34, 44)
ATM = (32, 40)
LINE = """
[upload]
rate_kbit = {rate_kbit}
overhead = {overhead}
cell = "{cell}"
buffer_ms = 300

[download]
rate_kbit = 30000
overhead = {overhead}
buffer_ms = 20

[path]
rtt_ms = 16.0
"""


def scenarios() -> list[Scenario]:
    return [line(6000, overhead, "none") for overhead in FRAMES] + [line(1200, overhead, "atm") for overhead in ATM]


def line(rate_kbit: int, overhead: int, cell: str) -> Scenario:
    name = f"{'atm' if cell == 'atm' else 'frames'}-{overhead}"
    text = f'name = "{name}"\n' + LINE.format(rate_kbit=rate_kbit, overhead=overhead, cell=cell)
    return parse(tomllib.loads(text), Path(f"{name}.toml"))
