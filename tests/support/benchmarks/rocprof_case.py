"""A stand-in for rocprofv3, which runs the command and replays a recorded kernel trace.

Only the program is a stand-in: it takes rocprofv3's options, and what it writes is recorded output
(tests/data/rocprofv3). The command writes `trace.csv`, the recording that is replayed.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.paths import ROOT

RECORDED = ROOT / "tests/data/rocprofv3"
TRACE = RECORDED / "sdk_docs_2025-08_kernel_trace.csv"
REPLAY = f"""\
#!{sys.executable}
import os, subprocess, sys
from pathlib import Path
words = sys.argv[1:]
own, command = words[:words.index("--")], words[words.index("--") + 1:]
assert own[:3] == ["--kernel-trace", "--output-format", "csv"], own
child = subprocess.Popen(command)
code = child.wait()
name = own[own.index("-o") + 1].replace("%pid%", str(child.pid))
folder = Path(own[own.index("-d") + 1])
agents = Path({str(RECORDED / "sdk_docs_2025-08_agent_info.csv")!r})
(folder / (name + "_agent_info.csv")).write_bytes(agents.read_bytes())
if Path("trace.csv").exists():
    (folder / (name + "_kernel_trace.csv")).write_bytes(Path("trace.csv").read_bytes())
sys.exit(code)
"""
DRIVER = """
with open("trace.csv", "w") as file:
    file.write(kernel.TRACE)
"""


def install(folder: Path) -> str:
    """Write the program and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "rocprofv3"
    program.write_text(REPLAY)
    program.chmod(0o755)
    return str(program)


def scaled(factor: float | Callable[[str], float], trace: Path = TRACE) -> str:
    """Return a recorded trace in which kernels take `factor` times as long."""
    lines = list(csv.DictReader(io.StringIO(trace.read_text())))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    for line in lines:
        began, ended = int(line["Start_Timestamp"]), int(line["End_Timestamp"])
        times = factor(line["Kernel_Name"]) if callable(factor) else factor
        writer.writerow({**line, "End_Timestamp": began + round((ended - began) * times)})
    return text.getvalue()
