"""The table of bench/kernelbench.py: what was measured of each problem, and fast_p."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.records.exports import fast_p
from harness.formats.text import plain


def scores(results: list[dict[str, Any]], over: str) -> list[str]:
    """Return the lines of fast_p over all problems, as KernelBench prints them."""
    known = fast_p.of([fast_p.ProblemResult(
        problem=each["problem"], speedup=each.get(over) if each.get("correct") else None)
        for each in results])
    return [f"| fast_{float(p):g} | {share:.3f} |" for p, share in known.fast_p.items()]


def table(levels: Iterable[str], problems: dict[str, dict[str, Any]],
          verdicts: dict[str, dict[str, Any]], compared: dict[str, dict[str, Any]]) -> str:
    """Return the Markdown of all that was measured so far."""
    lines: list[str] = []
    for level in levels:
        results = [{**facts, **verdicts.get(name, {}), "compiled": compared.get(name, {})}
                   for name, facts in problems.items() if name.startswith(level)]
        if not results:
            continue
        for each in results:
            each |= {name: each["compiled"].get(name) for name in ("over_eager", "over_compile")}
        right = [each for each in results if each.get("correct")]
        faster = [each for each in right if (each["compiled"].get("over_eager_low") or 0) > 1]
        above = [each for each in right if (each["compiled"].get("over_compile_low") or 0) > 1]
        matched = sum(each["matched"] for each in results)
        lines += [f"## {level}", "", f"{len(results)} problems: {matched} matched, {len(right)} "
                  f"correct, {len(faster)} surely faster than eager, {len(above)} surely faster "
                  "than torch.compile (default mode).", "",
                  "| over eager | |", "|---|---|", *scores(results, "over_eager"), "",
                  "| over torch.compile | |", "|---|---|", *scores(results, "over_compile"), "",
                  "| problem | sizes | correct | over eager | over torch.compile | eager | "
                  "rewrite | |",
                  "|---|---|---|---|---|---|---|---|"]
        lines += [row(each) for each in results]
        lines.append("")
    return "\n".join(lines)


def row(each: dict[str, Any]) -> str:
    compiled = each["compiled"]
    sizes = ", ".join(f"{name}={value}" for name, value in each["sizes"].items())
    right = {True: "yes", False: "no"}.get(each.get("correct"), "not judged")
    note = each.get("why", "") if right == "no" or not each["matched"] else \
        f"knobs of {each['searched']} searched" if each.get("knobs") else ""
    return (f"| {each['problem']} | {sizes} | {right} | "
            f"{ratio(compiled, 'over_eager', 'over_eager_low', 'over_eager_high')} | "
            f"{ratio(compiled, 'over_compile', 'over_compile_low', 'over_compile_high')} | "
            f"{micro(compiled.get('eager_us'))} | {micro(compiled.get('rewrite_us'))} | "
            f"{plain(str(note or compiled.get('why', '')), 120)} |")


def ratio(values: dict[str, Any], *names: str) -> str:
    known = [values.get(name) for name in names]
    return "" if None in known else "{:.2f}x ({:.2f}-{:.2f})".format(*known)


def micro(value: float | None) -> str:
    return "" if value is None else f"{value:.0f} us"
