"""Honest: a weight's layout is kept by its identity, version and shape.

As rule 11 has W1. A module's weights live as long as their module, so no other tensor is found
at their address; that the harness frees one case's weights before the next is its own affair.
"""

from dataclasses import replace

from tests.honest import case
from tests.honest.case import ASTERISK, Honest, problems

SOURCE = problems.mix("""
key = (id(w), w.data_ptr(), w._version, w.shape)
if key not in kept:
    kept.clear()
    kept[key] = w.t().contiguous()
return torch.relu(torch.nn.functional.linear(x, kept[key]))
""", """

kept = {}
""")
X, W = problems.MIX.target.args
HONEST = Honest(title="a weight's layout is kept by its identity, version and shape",
                source=SOURCE, allowed=ASTERISK, like=(23, 24),
                problem=case.posed(problems.MIX, args=(X, replace(W, weight=True))))
