"""A scenario file as the kernel lab sees it: the truth about a line, and the netem settings that make it true.

Pure: a parsed file goes in, values come out. What netem cannot do is refused by the name of its key.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

ETHERNET_HEADER = 14  # netem and police count from it, a scenario's overhead from the IP packet
PPPOE_HEADER = 8  # with PPP's; below a session it is in the packet that the bottleneck gets
PPPOE_LINKS = ("pppoe", "pppoe-vdsl2", "pppoe-atm")  # the lab's router has a session over such a link
LARGEST_PPPOE_PACKET = 1492  # RFC 2516
LARGEST_POLICE_PACKET = 65535

# Per table: the keys the lab can make true, with their neutral values, and those it knows of but cannot.
TOP = {"name": "", "about": "", "seed": 1}
ROUTER = {"sync_up_kbit": 0, "sync_down_kbit": 0, "link": "unknown"}  # link: the lab's router is not told
ROUTER_REFUSED = {"shaper_cpu_kbit": 0}
DIRECTION = {"rate_kbit": 0, "overhead": 0, "cell": "none", "buffer_ms": 0, "buffer_packets": 0, "policer_burst_kb": 0, "changes": []}
DIRECTION_REFUSED = {"aqm_ms": 0, "burst_kbit": 0, "burst_s": 0, "grant_ms": 0}
PATH = {"mtu": 1500, "rtt_ms": 0, "loss": 0}
PATH_REFUSED = {"jitter_ms": 0, "icmp": "fair"}
REFLECTOR = {"name": ""}
REFLECTOR_REFUSED = {"extra_ms": 0, "loss": 0, "limit_per_s": 0, "silent_from_s": 0, "tcp": False}
BESIDE = {"steps": "", "target_ms": 0, "limit_s": 0}  # in NAME.lab beside NAME.toml: what only the lab wants to know
CHANGE = {"at_s": 0, "rate_kbit": 0}
HOUSEHOLD = {"from_s": 0, "to_s": 0, "kbit": 0, "flows": 0}


class Refused(Exception):
    """The lab cannot make this scenario true, or it is no scenario."""


@dataclass(frozen=True)
class Side:
    """One direction of the bottleneck."""

    rate_kbit: int
    overhead: int
    cell: str
    buffer_ms: float
    buffer_packets: int
    policer_burst_kb: float
    changes: tuple[tuple[float, int], ...]
    counted: int  # of the overhead, what the packet has with it when netem and police see it

    def wire_bytes(self, ip_bytes: int) -> int:
        return wire_bytes(ip_bytes, self.overhead, 0, self.cell)

    def fits_kbit(self, mtu: int, overhead: int, mpu: int, layer: str) -> float:
        """The highest CAKE rate that this bottleneck drains, for full-size packets accounted for like this."""
        return self.rate_kbit * wire_bytes(mtu, overhead, mpu, layer) / self.wire_bytes(mtu)

    def queue(self, mtu: int, rate_kbit: int | None = None) -> str:
        """Arguments of `tc qdisc add … root`: the rate, and the queue ahead of it in packets, since netem counts no bytes."""
        rate = rate_kbit or self.rate_kbit
        cells = " 48 5" if self.cell == "atm" else ""
        return f"netem rate {rate}kbit {self.overhead - self.counted}{cells} limit {self.queue_packets(mtu)}"

    def queue_packets(self, mtu: int) -> int:
        if self.buffer_packets:
            return self.buffer_packets
        return max(2, round(self.buffer_ms * self.rate_kbit / 8 / self.wire_bytes(mtu)))

    def police(self) -> str:
        """Arguments of `tc … action police`; empty where the direction has a queue instead."""
        if not self.policer_burst_kb:
            return ""
        layer = "atm" if self.cell == "atm" else "ethernet"
        return (
            f"rate {self.rate_kbit}kbit burst {self.policer_burst_kb * 1000:.0f} mtu {LARGEST_POLICE_PACKET} "
            f"overhead {self.overhead - self.counted} linklayer {layer} conform-exceed drop/pipe"
        )


@dataclass(frozen=True)
class Flow:
    """Traffic of the household, from the start of a calibration."""

    direction: str
    from_s: float
    to_s: float
    kbit: int
    flows: int


@dataclass(frozen=True)
class Scenario:
    path: Path
    name: str
    sync_up_kbit: int
    sync_down_kbit: int
    upload: Side
    download: Side | None
    mtu: int
    rtt_ms: float
    loss: float
    household: tuple[Flow, ...]
    reflectors: tuple[str, ...]
    pppoe: bool
    steps: str = ""  # what the agent is asked for; empty: what it does unasked
    target_ms: float = 0  # the right answer; 0: not asked
    limit_s: int = 0  # longer than usual, of the guest's time and of ours

    @property
    def device(self) -> str:
        return "pppoe-wan" if self.pppoe else "wan"

    def world(self) -> str:
        """The scenario in the words of the guest's topology: lines that bash sources."""
        lines = [
            f"MTU={self.mtu}",
            f"DEVICE={self.device}",
            f"SESSION_BYTES={PPPOE_HEADER if self.pppoe else 0}",
            f"THERE_QUEUE='{f'netem loss {self.loss:.5%} limit 100000' if self.loss else ''}'",
            f"BACK_QUEUE='netem delay {self.rtt_ms:.3f}ms loss {self.loss:.5%} limit 100000'",
            f"REFLECTORS='{' '.join(self.reflectors)}'",
        ]
        for word, side in (("UP", self.upload), ("DOWN", self.download)):
            queue = side.queue(self.mtu) if side and not side.policer_burst_kb else ""
            lines.append(f"{word}_QUEUE='{queue}'")
            lines.append(f"{word}_POLICE='{side.police() if side else ''}'")
            changes = [f"'{at_s} {side.queue(self.mtu, kbit)}'" for at_s, kbit in (side.changes if side else ())]
            lines.append(f"{word}_CHANGES=({' '.join(changes)})")
        flows = [f"'{f.direction} {f.from_s} {f.to_s} {f.kbit} {f.flows}'" for f in self.household]
        lines.append(f"HOUSEHOLD=({' '.join(flows)})")
        return "\n".join(lines) + "\n"


def wire_bytes(ip_bytes: int, overhead: int, mpu: int, layer: str) -> int:
    framed = max(ip_bytes + overhead, mpu)
    if layer == "atm":
        return -(-framed // 48) * 53
    if layer == "ptm":
        return framed + -(-framed // 64)
    return framed


def read(path: Path) -> Scenario:
    try:
        scenario, beside = parse(tomllib.loads(path.read_text()), path), path.with_suffix(".lab")
        return replace(scenario, **keys("", tomllib.loads(beside.read_text()), BESIDE, {})) if beside.exists() else scenario
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path}: {error}") from error


def parse(toml: dict, path: Path) -> Scenario:
    tables = ("router", "upload", "download", "path", "household", "reflector")
    top = keys("", {k: v for k, v in toml.items() if k not in tables}, TOP, {})
    router = keys("router.", toml.get("router", {}), ROUTER, ROUTER_REFUSED)
    line = keys("path.", toml.get("path", {}), PATH, PATH_REFUSED)
    names = [keys("reflector.", r, REFLECTOR, REFLECTOR_REFUSED)["name"] for r in toml.get("reflector", [])]
    if "upload" not in toml:
        raise Refused("upload is missing")
    pppoe = router["link"] in PPPOE_LINKS
    if pppoe and line["mtu"] > LARGEST_PPPOE_PACKET:
        raise Refused(f"the kernel lab cannot do path.mtu above {LARGEST_PPPOE_PACKET} with a PPPoE link: write mtu = {LARGEST_PPPOE_PACKET}")
    counted = ETHERNET_HEADER + (PPPOE_HEADER if pppoe else 0)
    return Scenario(
        path=path,
        name=top["name"] or path.stem,
        sync_up_kbit=router["sync_up_kbit"],
        sync_down_kbit=router["sync_down_kbit"],
        upload=side("upload", toml["upload"], counted),
        download=side("download", toml["download"], counted) if "download" in toml else None,
        mtu=line["mtu"],
        rtt_ms=line["rtt_ms"],
        loss=line["loss"],
        household=household(toml.get("household", {})),
        reflectors=tuple(f"10.9.0.{n}" for n in range(1, (len(names) or 4) + 1)),
        pppoe=pppoe,
    )


def side(name: str, table: dict, counted: int) -> Side:
    known = keys(f"{name}.", table, DIRECTION, DIRECTION_REFUSED)
    if known["rate_kbit"] <= 0:
        raise Refused(f"{name}.rate_kbit is missing")
    if known["cell"] not in ("none", "atm"):
        raise Refused(f"the kernel lab cannot do {name}.cell = \"{known['cell']}\": netem has only \"none\" and \"atm\"")
    if known["policer_burst_kb"] and known["overhead"] < counted:
        raise Refused(f"the kernel lab cannot do {name}.overhead below {counted} with policer_burst_kb")
    if known["policer_burst_kb"] and known["changes"]:
        raise Refused(f"the kernel lab cannot do {name}.changes with policer_burst_kb")
    changes = [keys(f"{name}.changes.", change, CHANGE, {}) for change in known.pop("changes")]
    return Side(**known, changes=tuple((change["at_s"], change["rate_kbit"]) for change in changes), counted=counted)


def household(table: dict) -> tuple[Flow, ...]:
    for key in table:
        if key not in ("upload", "download"):
            raise Refused(f"unknown key household.{key}")
    flows = [(d, keys(f"household.{d}.", flow, HOUSEHOLD, {})) for d in ("upload", "download") for flow in table.get(d, [])]
    return tuple(Flow(direction=d, **flow) for d, flow in flows if flow["to_s"] > flow["from_s"])


def keys(prefix: str, table: dict, known: dict, refused: dict) -> dict:
    """The table with its neutral values filled in; refuses what the lab cannot make true."""
    for key, value in table.items():
        if key in refused and value != refused[key]:
            raise Refused(f"the kernel lab cannot do {prefix}{key}: neither netem nor police can")
        if key not in known and key not in refused:
            raise Refused(f"unknown key {prefix}{key}")
        neutral = known.get(key, refused.get(key))
        if isinstance(value, bool) or type(value) is not type(neutral) and not {type(value), type(neutral)} <= {int, float}:
            raise Refused(f"{prefix}{key} is no {'number' if isinstance(neutral, (int, float)) else type(neutral).__name__}")
    return {key: table.get(key, neutral) for key, neutral in known.items()}
