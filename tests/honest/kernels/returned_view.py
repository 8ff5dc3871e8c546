"""Honest: the result is a view of a new, larger buffer.

Each call allocates the buffer, often at the address of an earlier output.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
wide = torch.empty(x.shape[0], w.shape[1] + 3, dtype=x.dtype)
return torch.mm(x, w, out=wide[:, :w.shape[1]]).relu_()
""")
HONEST = Honest(title="the result is a view of a new, larger buffer", source=SOURCE,
                problem=problems.MIX, like=(3, 19, 31))
