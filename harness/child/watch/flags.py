"""Process-wide settings that a kernel could change: torch's flags and the environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import reduce
from os import environ
from typing import Any

OF_COMPILE = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_CACHE_DIR", "KMP_DUPLICATE_LIB_OK",
              "CUBLAS_WORKSPACE_CONFIG")
"""What torch.compile sets for itself."""
TOOLS = ("TRITON_PTXAS_PATH", "TRITON_LIBDEVICE_PATH")
"""torch.compile sets these too, to files installed with torch."""
FLAGS = """
    backends.fp32_precision backends.cuda.matmul.allow_tf32 backends.cuda.matmul.fp32_precision
    backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    backends.cuda.matmul.allow_fp16_accumulation backends.cudnn.enabled backends.cudnn.benchmark
    backends.cudnn.benchmark_limit backends.cudnn.deterministic backends.cudnn.allow_tf32
    backends.cudnn.fp32_precision backends.cudnn.conv.fp32_precision
    backends.cudnn.rnn.fp32_precision backends.mkldnn.enabled backends.mkldnn.deterministic
    backends.mkldnn.matmul.fp32_precision backends.mkldnn.conv.fp32_precision"""
CALLS = """
    get_float32_matmul_precision get_default_dtype get_default_device is_grad_enabled
    is_inference_mode_enabled is_anomaly_enabled is_autocast_enabled is_autocast_cpu_enabled
    are_deterministic_algorithms_enabled is_deterministic_algorithms_warn_only_enabled
    get_num_threads get_num_interop_threads get_deterministic_debug_mode
    backends.cuda.flash_sdp_enabled backends.cuda.mem_efficient_sdp_enabled
    backends.cuda.math_sdp_enabled backends.cuda.cudnn_sdp_enabled
    backends.cuda.preferred_linalg_library backends.cuda.preferred_blas_library
    _C._len_torch_function_stack _C._len_torch_dispatch_stack"""


def settings() -> dict[str, str]:
    """Return every setting by name, as text."""
    flags = {f"the environment's {name}": value for name, value in environ.items()
             if not name.startswith(OF_COMPILE)
             and not (name in TOOLS and value.startswith(f"{sys.prefix}/"))}
    torch = sys.modules.get("torch")
    if torch is None:
        return flags
    for name in FLAGS.split():
        flags[f"torch.{name}"] = _value(torch, name, lambda value: value)
    for name in CALLS.split():
        flags[f"torch.{name}"] = _value(torch, name, lambda value: value())
    flags["flush-to-zero mode"] = str(sys.float_info.min / 2 == 0)
    return flags


def changed(before: dict[str, str]) -> list[str]:
    """Return the settings that differ from `before`."""
    after = settings()
    return [f"{name} was changed" for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)]


def _value(torch: Any, name: str, read: Callable[[Any], Any]) -> str:
    try:
        return str(read(reduce(getattr, name.split("."), torch)))
    except Exception as error:  # torch refuses to read some flags once newer ones are set
        return type(error).__name__
