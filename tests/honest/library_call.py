"""Honest: a call of the library, where the task allows it.

The incumbent calls the same library: the owner has chosen it.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
return torch.nn.functional.linear(x, w.t()).relu_()
""")
HONEST = Honest(title="a call of the library, where the task allows it", source=SOURCE,
                problem=problems.MIX, like=(41, 43))
