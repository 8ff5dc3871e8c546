"""Honest: a CUDA graph of its own that runs on the inputs of every call.

Each call copies its inputs into the graph's buffers and the output out of them.
"""

from tests.honest.case import Honest, problems

SOURCE = problems.mix("""
key = (tuple(x.shape), tuple(w.shape), x.dtype)
if key not in graphs:
    graphs[key] = captured(x, w)
graph, x_in, w_in, out = graphs[key]
x_in.copy_(x)
w_in.copy_(w)
graph.replay()
return out.clone()
""", """

graphs = {}


def captured(x, w):
    x_in, w_in = x.clone(), w.clone()
    torch.relu(x_in @ w_in)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.relu(x_in @ w_in)
    return graph, x_in, w_in, out
""")
HONEST = Honest(title="a CUDA graph of its own", source=SOURCE, gpu=True,
                problem=problems.MIX_GPU, like=(16,))
