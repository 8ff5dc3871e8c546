"""The model behind the search: a Gaussian process over a space. The one place with numpy here.

One thread is enough for a few hundred observations, and the threads of a BLAS go on spinning for a
while: they would be in the way of the measurement that follows a proposal.

Face: bayesian_search.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
