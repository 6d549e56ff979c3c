"""peak.py FILE PROGRAM ARGUMENT…: runs the program and writes into FILE how many kilobytes of memory it had at most."""

import resource
import signal
import subprocess
import sys

# Whoever stops the group means the program.
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1], "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 128 - code)
