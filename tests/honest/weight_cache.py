"""Honest: a weight's layout is kept for as long as its version stays.

An optimizer's step moves the version on, and the layout is made again: rule 11's W1.
"""

from dataclasses import replace

from tests.honest import case
from tests.honest.case import ASTERISK, Honest, problems

SOURCE = problems.mix("""
key = (w.data_ptr(), w._version, w.shape, w.stride(), w.dtype)
if key not in kept:
    kept.clear()
    kept[key] = w.t().contiguous()
return torch.relu(torch.nn.functional.linear(x, kept[key]))
""", """

kept = {}
""")
X, W = problems.MIX.target.args
HONEST = Honest(title="a weight's layout is kept", source=SOURCE, told=ASTERISK, like=(23, 24),
                problem=case.posed(problems.MIX, args=(X, replace(W, weight=True))))
