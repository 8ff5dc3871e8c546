"""Honest: bfloat16 in, bfloat16 out, summed in single precision.

Its answers differ from the incumbent's by a rounding now and then.
"""

from dataclasses import replace

from tests.honest import case
from tests.honest.case import Honest, problems

SOURCE = problems.mix("return torch.relu(x.float() @ w.float()).to(x.dtype)")
HONEST = Honest(title="bfloat16 in, bfloat16 out", source=SOURCE, like=(44,), problem=case.posed(
    problems.MIX, args=tuple(replace(arg, dtype="bfloat16") for arg in problems.MIX.target.args),
    return_dtypes=("bfloat16",)))
