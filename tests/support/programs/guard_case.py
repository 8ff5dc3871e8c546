"""Programs that outlive their parent, and the supervisors below a process."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.programs.processes import marked

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c",
                                  "import time; time.sleep(600)", sys.argv[1]])
    os._exit(0)
os.wait()
"""


SLEEP = "import time; time.sleep(600)"


def supervisors(pid: int) -> list[int]:
    """Return the pids of the supervisors below a process, outermost first."""
    pids = []
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text()
                                          .rsplit(") ", 1)[1].split()[1])
            except OSError:
                continue
    supervising = marked("supervise.zygote")
    for child in sorted(pid for pid in supervising if parents.get(pid) in supervising):
        above = child
        while above in parents and above != pid:
            above = parents[above]
        if above == pid:
            pids.append(child)
    return pids
