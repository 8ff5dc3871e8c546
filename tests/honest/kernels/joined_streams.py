"""Honest: two side streams wait for the caller's stream, which then waits for both.

All work on the side streams is complete before the caller's stream continues.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
half = x.shape[0] // 2
out = torch.empty(x.shape[0], w.shape[1], dtype=x.dtype, device=x.device)
main, side = torch.cuda.current_stream(), stream()
side.wait_stream(main)
with torch.cuda.stream(side):
    torch.mm(x[half:], w, out=out[half:])
torch.mm(x[:half], w, out=out[:half])
main.wait_stream(side)
return out.relu_()
""", """

streams = []


def stream():
    if not streams:
        streams.append(torch.cuda.Stream())
    return streams[0]
""")
HONEST = Honest(title="two side streams wait for the caller's stream", source=SOURCE, gpu=True,
                problem=problems.MIX_GPU, like=(1,))
