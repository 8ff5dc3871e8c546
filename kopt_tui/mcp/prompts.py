"""The prompts that the MCP server offers."""

from __future__ import annotations


def optimise_a_kernel(manifest: str = "manifest.yaml") -> str:
    """Make the kernel of a manifest faster, with kopt's verdicts as the only measure."""
    return f"""\
Make the kernel of {manifest} faster.
1. Call `propose` and read the kernel's source and its reference.
2. Call `evaluate` without a change: it shows the latency of each config class and its share of the
   roofline. Choose the class with the largest share of the time.
3. State one hypothesis in one sentence: what limits this class, and what change removes the limit.
4. Make one change and call `evaluate` with it. A rejected or incorrect verdict says why: repair it.
   A tie means that the hypothesis is wrong or too small: state another one.
5. Tune what has knobs with `loop`.
Report only numbers from verdicts, with their intervals.
"""


def read_a_verdict(candidate: str) -> str:
    """Explain the verdict of a candidate to an engineer."""
    return f"""\
Call `verdict` for {candidate} and explain it in at most eight sentences: is the candidate valid and
correct; for which config classes is it faster, with the interval of each; what does the audit flag;
what is not measured; and what a person should look at before approving. Add no number of your own.
"""
