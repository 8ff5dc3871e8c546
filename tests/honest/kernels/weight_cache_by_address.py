"""Honest: a weight's layout is kept by its identity, version and shape.

This is W1 of rule 11. A module's weights live as long as the module, so no other tensor gets their
address; only the harness frees the weights of one case before the next.
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
