"""A benchmark target, its script, and shapes for its quick command."""

from __future__ import annotations

from harness.benchmark.spec.command_target import CheckColumn, CommandTarget, Metric

TARGET = CommandTarget(op="pa", command="python bench.py --all", csv="out.csv",
                       metrics=(Metric(name="us"),), check=CheckColumn(column="err", rule="== 0"))


BENCH = """\
import argparse, csv, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--all", action="store_true"){options}
args = parser.parse_args()
rows = [dict(mtp=m, context=c, err=0, us=f"{{m * c}}.5") for m in (1, 2) for c in (512, 4096)]
with open("runs.txt", "a") as file:
    file.write("run ")
{restrict}
with open("out.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, rows[0]); writer.writeheader(); writer.writerows(rows)
"""


OPTIONS = """
parser.add_argument("-c", "--context", type=int)
parser.add_argument('--mtp', type=int)"""


BY_ARGUMENTS = """\
rows = [r for r in rows if args.mtp in (None, r["mtp"]) and args.context in (None, r["context"])]"""


SHAPES = ({"mtp": "2", "context": "512"}, {"mtp": "1", "context": "4096"})
