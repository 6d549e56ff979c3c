"""One guest: what it is given, how it is started, when it is given up."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from scenario import Scenario

HERE = Path(__file__).resolve().parent
LAB = HERE.parent.parent / "target" / "lab"
MEMORY_MB = 1024
PATIENCE_S = 200  # of the guest's time, for one run of the agent


@dataclass(frozen=True)
class Job:
    """Something the guest does; `kind` is a function of guest/jobs."""

    name: str
    kind: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Boot:
    name: str
    scenario: Scenario
    jobs: tuple[Job, ...]
    agent_arguments: tuple[str, ...]
    limit_s: int


@dataclass(frozen=True)
class Ran:
    """What is left of a boot. `trouble` says why its results are not complete."""

    boot: Boot
    directory: Path
    seconds: float
    trouble: str | None


class Machine:
    def __init__(self, boot: Boot) -> None:
        self.boot = boot
        self.directory = LAB / "out" / boot.name
        self.process: subprocess.Popen | None = None
        self.unwanted = False

    def run(self) -> Ran:
        started = time.monotonic()
        trouble = None
        if self.unwanted:
            return Ran(self.boot, self.directory, 0.0, "not started")
        self.furnish()
        self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            if self.process.wait(self.boot.limit_s) != 0:
                trouble = f"qemu ended with {self.process.returncode}"
        except subprocess.TimeoutExpired:
            trouble = f"given up after {self.boot.limit_s} s"
        finally:
            self.end()
        if trouble is None and not (self.directory / "complete").exists():
            trouble = "the guest ended before its jobs did"
        return Ran(self.boot, self.directory, time.monotonic() - started, trouble and f"{trouble}; {self.last_words()}")

    def end(self) -> None:
        """Ends the guest, and one that has not begun before it does."""
        self.unwanted = True
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def furnish(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        for program in (LAB / "bin").iterdir():
            shutil.copy(program, self.directory)
        jobs = [" ".join((job.name, job.kind, *job.words)) for job in self.boot.jobs]
        (self.directory / "jobs").write_text("\n".join(jobs) + "\n")
        arguments = " ".join(map(shlex.quote, self.boot.agent_arguments))
        (self.directory / "world").write_text(f"{self.boot.scenario.world()}agent_arguments=({arguments})\npatience={max(PATIENCE_S, self.boot.scenario.limit_s)}\n")
        here, kernel = shlex.quote(str(HERE / "guest")), shlex.quote(str(LAB / "kernel"))
        (self.directory / "start").write_text(f"here={here}\nkernel={kernel}\n. {here}/main\n")

    def command(self) -> list[str]:
        """Plain emulation of one processor; no network but the guest's own; the host's files read-only.

        The guest's clock counts its instructions, one a nanosecond, and skips its idle time: a busy host makes a run longer, but
        changes nothing in it. The kernel leaves out what protects it from users it does not have, and the interrupt controllers whose
        timers it would first have to measure: that took half of the boot. As a batch job qemu's threads do not interrupt each other
        at each of the guest's timers.
        """
        share = "local,security_model=none,multidevs=remap"
        kernel_options = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off init_on_alloc=0 norandmaps nolapic noapic pci=nomsi hpet=disable"
        return [
            *("chrt", "--batch", "0", "qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"),
            *("-cpu", "qemu64,+rdrand", "-smp", "1", "-m", str(MEMORY_MB)),
            *("-kernel", str(LAB / "kernel" / "vmlinux"), "-initrd", str(LAB / "initrd.gz"), "-append", kernel_options),
            *("-display", "none", "-monitor", "none", "-serial", f"file:{self.directory / 'console.log'}"),
            *("-no-reboot", "-nic", "none"),
            *("-virtfs", f"{share},path=/,mount_tag=host,readonly=on"),
            *("-virtfs", f"{share},path={self.directory},mount_tag=out"),
        ]

    def last_words(self) -> str:
        log = self.directory / "console.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"{log.relative_to(LAB.parent.parent)} ends with: {lines[-1][:200] if lines else '(nothing)'}"
