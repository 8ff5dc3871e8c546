"""A generated harness for examples/rmsnorm_c, ways to spoil it, and an agent that writes it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.support.paths import ROOT

HARNESS = '''\
"""Check and time rmsnorm.c."""
import csv, ctypes, math, os, random, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SHAPES = [(16, 64), (4, 128), (7, 33)]
EPS = 1e-6


def build():
    library = HERE / ".kopt_build" / "rmsnorm.so"
    library.parent.mkdir(exist_ok=True)
    done = subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(library),
                           str(HERE / "rmsnorm.c"), "-lm"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the build failed: {done.stderr.splitlines()[0]}")
    return ctypes.CDLL(str(library))


def buffers(rows, cols):
    draw, floats = random.Random(os.urandom(8)), ctypes.c_float
    return ((floats * (rows * cols))(*[draw.gauss(0, 1) for _ in range(rows * cols)]),
            (floats * cols)(*[draw.gauss(1, 0.1) for _ in range(cols)]),
            (floats * (rows * cols))(*[math.nan] * (rows * cols)))


def is_right(x, weight, out, rows, cols):
    for r in range(rows):
        row = x[r * cols:(r + 1) * cols]
        scale = 1 / math.sqrt(math.fsum(v * v for v in row) / cols + EPS)
        if not all(abs(out[r * cols + c] - row[c] * scale * weight[c]) <= 1e-4
                   for c in range(cols)):
            return False
    return True


def run(mode, iterations):
    library, table = build(), []
    for rows, cols in SHAPES:
        args = buffers(rows, cols)
        call = lambda: library.rmsnorm(*args, ctypes.c_int64(rows), ctypes.c_int64(cols),
                                       ctypes.c_float(EPS))
        call()
        if mode == "--profile":
            continue
        right = is_right(*args, rows, cols)
        if mode == "--correctness":
            print(rows, cols, "right" if right else "wrong")
            if not right:
                sys.exit(f"rows={rows} cols={cols} is wrong")
            continue
        times = []
        for _ in range(iterations):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        table.append({"rows": rows, "cols": cols, "check": "PASS" if right else "FAIL",
                      "latency_us": f"{sorted(times)[iterations // 2] * 1e6:.3f}"})
    if mode in ("--benchmark", "--full-benchmark"):
        with open(HERE / "kopt_harness.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
        if any(row["check"] == "FAIL" for row in table):
            sys.exit("a configuration is wrong")


words = sys.argv[1:]
run(words[0], int(words[words.index("--iterations") + 1]) if "--iterations" in words else 200)
'''
KERNEL = ROOT / "examples" / "rmsnorm_c" / "rmsnorm.c"
TRACED = "rows,cols,calls\n16,64,7\n4,128,2\n7,33,1\n"
SPOILED = {
    "not-python": ("import csv", "import csv csv"),
    "no-profile": ('if mode == "--profile":', 'if mode == "--trace":'),
    "absolute": ("Path(__file__).resolve().parent", 'Path("/opt/project")'),
    "elsewhere": ('str(HERE / "rmsnorm.c")', "os.sep.join(PLACE)"),
    "blind": ("return False", "return True"),
    "wrong-reference": ("+ EPS)", "+ 1.0)"),
    "fewer-rows": ("in SHAPES:", 'in SHAPES[:1 if mode == "--benchmark" else 3]:'),
    "untraced": ("(7, 33)]", "(8, 33)]"),
    "no-table": ('"kopt_harness.csv"', '"other.csv"'),
    "old-build": ("    done = subprocess", "    if library.exists():\n        "
                  "return ctypes.CDLL(str(library))\n    done = subprocess"),
    "hangs": ('if mode == "--profile":', 'if mode == "--profile":\n            time.sleep(60)'),
}
"""Faults by name: a text of the harness, and the text that replaces it."""
AGENT = '''\
"""Behaves like a coding agent: AGENT PROMPT HARNESSES VERDICTS, each a list with commas."""
import pathlib, sys

prompt, harnesses, verdicts = pathlib.Path(sys.argv[1]).read_text(), *sys.argv[2:]
of_verifier = "You review `kopt_harness.py`" in prompt
steps = (verdicts if of_verifier else harnesses).split(",")
count = pathlib.Path.home() / ("reviews" if of_verifier else "attempts")
done = int(count.read_text()) if count.exists() else 0
count.write_text(str(done + 1))
step = steps[min(done, len(steps) - 1)]
here = pathlib.Path(__file__).parent
(pathlib.Path.home() / f"prompt-{count.name}-{done + 1}").write_text(prompt)
if of_verifier:
    print("I have read it.\\nVerdict: " + step)
    if step == "FAIL":
        print("- line 3: the tolerance is too wide")
elif step == "dies":
    sys.exit("the model is not reachable")
elif step != "nothing":
    pathlib.Path("kopt_harness.py").write_text((here / f"{step}.py").read_text())
'''


def project(root: Path) -> Path:
    """Return a project with a kernel, without a benchmark."""
    folder = root / "project"
    folder.mkdir()
    shutil.copyfile(KERNEL, folder / "rmsnorm.c")
    (folder / "calls.csv").write_text(TRACED)
    return folder


def spoiled(fault: str) -> str:
    """Return the harness with a fault."""
    old, new = SPOILED[fault]
    assert old in HARNESS
    return HARNESS.replace(old, new.replace("PLACE", repr(str(KERNEL).split("/"))))


def agent(root: Path) -> str:
    """Write the agent and its harnesses; return its command, without HARNESSES and VERDICTS."""
    folder = root / "agent"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "good.py").write_text(HARNESS)
    for fault in SPOILED:
        (folder / f"{fault}.py").write_text(spoiled(fault))
    return f"{sys.executable} {folder / 'agent.py'} {{prompt}}"
