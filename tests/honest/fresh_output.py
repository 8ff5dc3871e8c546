"""Honest: its output is allocated anew by every call, and changed in place.

The allocator hands out the same memory again as soon as nobody holds it.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype)
torch.mm(x, w, out=out)
return out.clamp_(min=0)
""")
HONEST = Honest(title="its output is allocated anew by every call", source=SOURCE,
                problem=problems.MIX, like=(19, 31))
