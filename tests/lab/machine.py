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
BOOTED = LAB / "booted"  # a guest that waits where its initrd would mount the host's files
BOOT_LIMIT_S = 300  # a quiet machine takes ten


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
        return [*qemu(self.directory / "console.log", self.directory, "go"), "-monitor", "none", "-incoming", f"exec:cat {shlex.quote(str(BOOTED))}"]

    def last_words(self) -> str:
        log = self.directory / "console.log"
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return f"{log.relative_to(LAB.parent.parent)} ends with: {lines[-1][:200] if lines else '(nothing)'}"


def qemu(console: Path, out: Path, word: str) -> list[str]:
    """Plain emulation of one processor; no network but the guest's own; the host's files read-only. The initrd goes on at the word "go".

    The guest's clock counts its instructions, one a nanosecond, and skips its idle time: a busy host makes a run longer, but
    changes nothing in it. The kernel leaves out what protects it from users it does not have. As a batch job qemu's threads do not
    interrupt each other at each of the guest's timers. Those are its APIC's: the older ones cost a third more of a whole run.
    """
    share = "local,security_model=none,multidevs=remap"
    kernel_options = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off init_on_alloc=0 norandmaps"
    return [
        *("chrt", "--batch", "0", "qemu-system-x86_64", "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off,align=off"),
        *("-cpu", "qemu64,+rdrand", "-smp", "1", "-m", str(MEMORY_MB)),
        *("-kernel", str(LAB / "kernel" / "vmlinux"), "-initrd", str(LAB / "initrd.gz"), "-append", kernel_options),
        *("-display", "none", "-serial", f"file:{console}"),
        *("-no-reboot", "-nic", "none", "-fw_cfg", f"name=opt/lab,string={word}"),
        *("-virtfs", f"{share},path=/,mount_tag=host,readonly=on"),
        *("-virtfs", f"{share},path={out},mount_tag=out"),
    ]


def boot_one() -> None:
    """Boots one guest and puts it aside, for all others to begin there: a kernel's start takes eight seconds, and is the same each time."""
    made, console = BOOTED.with_suffix(".made"), BOOTED.with_suffix(".log")
    out = LAB / "out"
    out.mkdir(parents=True, exist_ok=True)
    command = [*qemu(console, out, "no"), "-monitor", "stdio"]
    version = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=True).stdout
    key = f"{shlex.join(command)}\n{version}{(LAB / 'initrd.gz').stat().st_mtime_ns}\n"
    if BOOTED.exists() and made.exists() and made.read_text() == key:
        return
    made.unlink(missing_ok=True)
    console.write_text("")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, text=True) as guest:
        try:
            until = time.monotonic() + BOOT_LIMIT_S
            while "booted" not in console.read_text(errors="replace"):
                if guest.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"the guest does not boot: see {console.relative_to(LAB.parent.parent)}")
                time.sleep(0.1)
            guest.communicate(f'migrate "exec:cat >{shlex.quote(str(BOOTED))}"\nquit\n', timeout=BOOT_LIMIT_S)
        finally:
            guest.kill()
    made.write_text(key)
