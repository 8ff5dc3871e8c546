"""The model behind the search: a Gaussian process over a space.

Outside `harness/child`, only this room of the harness imports numpy.

One thread is enough for a few hundred observations. More BLAS threads would keep spinning for a
while and disturb the measurement that follows a proposal.

Face: bayesian_search.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
