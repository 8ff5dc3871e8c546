"""Honest: a call of the library, where the task allows it, in bfloat16.

The incumbent calls the same library. Inputs and outputs are bfloat16, so some results differ from
the incumbent's by one rounding.
"""

from dataclasses import replace

from tests.honest import case
from tests.honest.case import Honest, problems

SOURCE = problems.mix("return torch.nn.functional.linear(x, w.t()).relu_()")
HONEST = Honest(title="a call of the library, where the task allows it", source=SOURCE,
                like=(41, 43, 44), problem=case.posed(
                    problems.MIX, return_dtypes=("bfloat16",), args=tuple(
                        replace(arg, dtype="bfloat16") for arg in problems.MIX.target.args)))
