"""Override the manifest's pool settings with environment variables when a campaign is created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from engine.manifest.schema import PoolSpec
from harness.errors import InputError

POOL_VARIABLES = {
    "KOPT_POOL_MODE": "mode", "KOPT_SKIP_PROFILE": "skip_profile",
    "KOPT_SELFTEST_ITERATIONS": "selftest_iterations",
    "KOPT_MIN_PARALLEL_WORKERS": "min_workers", "KOPT_WORKERS_PER_GPU": "workers_per_gpu"}
"""The pool's field of each variable; an empty variable overrides nothing."""
_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def apply_environment(pool: PoolSpec, environ: Mapping[str, str]) -> PoolSpec:
    """Return the pool with the environment's settings. Raises InputError naming the variable."""
    for variable, field in POOL_VARIABLES.items():
        if not (text := environ.get(variable, "").strip()):
            continue
        value: Any = _SWITCH.get(text.lower(), text) if field == "skip_profile" else \
            int(text) if text.isdecimal() else text
        fields = {name: getattr(pool, name) for name in pool.__struct_fields__} | {field: value}
        try:
            pool = msgspec.convert(msgspec.to_builtins(fields), PoolSpec)
        except msgspec.ValidationError as error:
            raise InputError(f"{text!r} is no {field}: {str(error).partition(' - ')[0]}",
                             where=variable, fix="unset it, or see pool in the manifest") from None
    return pool
