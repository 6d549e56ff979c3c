"""peak.py FILE PROGRAM ARGUMENT…: runs the program and writes into FILE how many kilobytes of memory it and its children had at
most, each on its own. The kernel counts that since a process began; it is asked every second, and what comes after is not seen.

(What the kernel says of a process that has ended is no less than what this interpreter has.)
"""

import signal
import subprocess
import sys
from pathlib import Path


def peak(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0
    own = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), 0)
    return max([own, *(peak(int(child)) for child in children)])


# Whoever stops the group means the program.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
program = subprocess.Popen(sys.argv[2:])
most = 0
while True:
    try:
        code = program.wait(timeout=1)
        break
    except subprocess.TimeoutExpired:
        most = max(most, peak(program.pid))
Path(sys.argv[1]).write_text(str(most))
sys.exit(code if code >= 0 else 128 - code)
