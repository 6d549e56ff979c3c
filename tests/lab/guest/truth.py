"""What the kernel does with four forwarded TCP flows, without an agent: one row each for the idle line, the unshaped line at three
segment sizes, and CAKE at shares of the line's rate. Prints JSON.

truth.py SERVER PORT RATE_KBIT PERCENT…      run in the client's namespace
"""

import ctypes
import json
import os
import queue
import re
import socket
import subprocess
import sys
import threading
import time

from traffic import HEADER

FLOWS = 4
SETTLE_S = 3.0
MEASURE_S = 8.0
CAKE_OVERHEAD = 44
REFLECTOR = "10.9.0.1"


def main() -> None:
    server, port, rate_kbit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    counters = Counters("modem", "m1")
    rows = [row("idle", counters, None, None)]
    for mss in (1460, 536, 216):
        rows.append(row(f"unshaped, MSS {mss}", counters, (server, port), mss))
    for percent in map(float, sys.argv[4:]):
        kbit = round(rate_kbit * percent / 100)
        tc(f"replace dev wan root cake bandwidth {kbit}kbit besteffort overhead {CAKE_OVERHEAD} rtt 100ms")
        rows.append(row(f"CAKE {kbit}", counters, (server, port), 1460) | {"shaper_kbit": kbit, "overhead": CAKE_OVERHEAD})
        tc("del dev wan root")
    json.dump(rows, sys.stdout, indent=1)


def row(name: str, counters: "Counters", address: tuple | None, mss: int | None) -> dict:
    over = threading.Event()
    flows = [threading.Thread(target=load, args=(address, mss, over)) for _ in range(FLOWS if address else 0)]
    for flow in flows:
        flow.start()
    time.sleep(SETTLE_S)
    ping = subprocess.Popen(
        ["ping", "-n", "-i", "0.05", "-w", str(int(MEASURE_S)), REFLECTOR], stdout=subprocess.PIPE, text=True
    )
    before = counters.read()
    time.sleep(MEASURE_S)
    after = counters.read()
    replies = sorted(float(ms) for ms in re.findall(r"time=([\d.]+)", ping.communicate()[0]))
    over.set()
    for flow in flows:
        flow.join()
    if flows:
        time.sleep(1.0)  # the queue drains
    seconds, octets, packets = (b - a for a, b in zip(before, after))
    return {
        "row": name,
        "probe_p50_ms": quantile(replies, 0.50),
        "probe_p95_ms": quantile(replies, 0.95),
        "ethernet_kbit": round(octets * 8 / seconds / 1000),
        "packets_per_s": round(packets / seconds, 1),
        "bytes_per_packet": round(octets / packets, 1) if packets else None,
    }


def load(address: tuple, mss: int, over: threading.Event) -> None:
    flow = socket.socket()
    flow.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    flow.connect(address)
    flow.sendall(HEADER.pack(b"u", 0, 0, 0.0))
    flow.settimeout(0.5)
    data = bytes(32768)
    while not over.is_set():
        try:
            flow.send(data)
        except TimeoutError:
            pass
    flow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset: nothing more is sent
    flow.close()


class Counters:
    """What left a device of another namespace, read by a thread that lives there: time and counters belong together."""

    def __init__(self, space: str, device: str) -> None:
        self.asked: queue.Queue = queue.Queue()
        self.answers: queue.Queue = queue.Queue()
        threading.Thread(target=self.live, args=(space, device), daemon=True).start()

    def read(self) -> tuple[float, int, int]:
        self.asked.put(None)
        return self.answers.get(timeout=5)

    def live(self, space: str, device: str) -> None:
        descriptor = os.open(f"/run/netns/{space}", os.O_RDONLY)
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter namespace {space}")
        while True:
            self.asked.get()
            with open("/proc/thread-self/net/dev", encoding="ascii") as table:
                fields = next(line for line in table if line.strip().startswith(device + ":")).split(":")[1].split()
            self.answers.put((time.monotonic(), int(fields[8]), int(fields[9])))


def tc(words: str) -> None:
    subprocess.run(["tc", "-n", "router", "qdisc", *words.split()], check=True)


def quantile(ordered: list[float], share: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


if __name__ == "__main__":
    main()
