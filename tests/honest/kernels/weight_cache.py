"""Honest: a weight's layout is kept until the weight's version changes.

An optimizer's step raises the version, and the layout is rebuilt (W1 of rule 11). The cache holds a
reference to the weight, so no other tensor can get its address.
"""

from dataclasses import replace

from tests.honest import case
from tests.honest.case import ASTERISK, Honest, problems

SOURCE = problems.mix("""
global kept
if kept is None or kept[0] is not w or kept[1] != w._version:
    kept = w, w._version, w.t().contiguous()
return torch.relu(torch.nn.functional.linear(x, kept[2]))
""", """

kept = None
""")
X, W = problems.MIX.target.args
HONEST = Honest(title="a weight's layout is kept", source=SOURCE, allowed=ASTERISK, like=(23, 24),
                problem=case.posed(problems.MIX, args=(X, replace(W, weight=True))))
