"""The project's own tests that need a kernel with CAKE: cargo's test programs, run in a guest where none may be skipped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import judge
from judge import Check
from machine import HERE, LAB, Boot, Job
from scenario import Refused, Scenario

NAME = "kernel-tests"
SCENARIO = "vdsl2-6"  # only for its boot
PROGRAMS = ("shaper_kernel", "forwarder_kernel", "path_mtu")
WITHOUT_CAKE = "a_kernel_without_cake_is_refused"


def boot(scenario: Scenario, limit_s: int) -> Boot:
    jobs = [Job(name, "suite", (str(build(name)), "with-cake", "--skip", WITHOUT_CAKE)) for name in PROGRAMS]
    jobs.append(Job("no-cake", "suite", (str(LAB / "bin" / PROGRAMS[0]), "without-cake", "--exact", WITHOUT_CAKE)))
    return Boot(NAME, scenario, tuple(jobs), (), 2 * limit_s)


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


def tested(directory: Path) -> list[Check]:
    """One check a test: it ran, was not skipped and passed. The program's own count must be the same."""
    out = judge.read(directory / "stdout")
    tests = re.findall(r"^test (\S+) \.\.\. (.*?)(?=^test |\Z)", out, re.MULTILINE | re.DOTALL)
    checks = [verdict(name, said) for name, said in tests]
    count = re.search(r"^test result: ok\. (\d+) passed; 0 failed; 0 ignored", out, re.MULTILINE)
    whole = judge.exit_code(directory) == 0 and count is not None and int(count[1]) == len(checks) > 0
    if not whole:
        checks.append(Check("all tests", False, f"exit {judge.exit_code(directory)}: {judge.last_line(directory / 'stderr')}"))
    return checks


def verdict(name: str, said: str) -> Check:
    skipped = next((line for line in said.splitlines() if "skipped:" in line), "")
    passed = not skipped and bool(re.search(r"^ok$", said, re.MULTILINE))
    return Check("test", passed, " ".join([name, skipped]).strip())


JUDGES = {"suite": tested}
