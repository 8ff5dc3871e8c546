"""A C target of one config class and a plan with a single look, for short verdicts."""

from __future__ import annotations

from dataclasses import replace

from harness.tasks.target import ConfigClass
from tests.support.kernels.c_case import QUICK, target

ONE_CLASS = target(classes=(ConfigClass(name="even", shape={"n": 8192}),))


SHORT = replace(QUICK, looks=(2,))
"""For tests that only need some timing."""
