"""The rates that an idle card reaches: measured once, cached for this machine.

They set the roofline and are evidence, but do not set the floor: a card under a power cap or with
other work reaches less than it could, so only the published peaks of `ceilings` withhold latencies.
They are measured under the device's lock in a guarded child; if that fails, no verdict does.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from harness.compile.c_compiler import cache_directory
from harness.compile.place import Place, scratch_inside
from harness.devices import datasheets
from harness.devices.device import Device
from harness.errors import Cancelled, EnvironmentFault
from harness.formats.json_codec import ConvertError, from_json, to_json
from harness.formats.text import plain, read_text
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import DeviceLock
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import INVALID_ANSWER, Peer, PeerDied, PeerError
from harness.tasks.target import Target
from harness.verdict import Evidence

SOURCE = Path(harness.__file__).parent / "child" / "measure_peaks.py"
PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp32")
OF_DTYPE = {"bfloat16": ("bf16",), "float16": ("fp16",), "float32": ("tf32", "fp32"),
            "float8_e4m3fn": ("fp8",), "float8_e5m2": ("fp8",)}
"""The precisions in which products of a dtype may run, as the floor counts them."""
RETRY_S = 3600.0
"""Seconds without another attempt after a failure; else every verdict would wait for one."""
COPIES, SQUARES = (1 << 28, 1 << 30, 1 << 32), (8192, 4096)
"""The sizes to try: bytes of a copy, rows of a square matrix."""
BEGIN_S, WALL_S = 3.0, 5.0
"""Seconds in which new requests are sent, and the limit of the whole measurement."""
TIMES_CACHE = 4
"""A copy is at least this many times larger than the last cache, which it would else measure."""


@dataclass(frozen=True, kw_only=True)
class GpuCeilings:
    """The best rates, GB/s copied (read and written) and TFLOP/s by precision.

    `missing` says by precision why it was not measured."""

    card: str
    torch: str
    copy_gb_per_s: float
    tflops: dict[str, float] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    at: str = ""

    def __post_init__(self) -> None:
        if not all(0 < rate < math.inf for rate in (self.copy_gb_per_s, *self.tflops.values())):
            raise ValueError("a rate must be a positive number")

    def precision(self, target: Target) -> str:
        """Return the fastest precision for a target's dtypes, "" where none was measured."""
        dtypes = {arg.dtype for arg in target.args if arg.kind != "scalar"}
        known = [precision for dtype in dtypes for precision in OF_DTYPE.get(dtype, ())
                 if precision in self.tflops]
        return max(known, key=lambda precision: self.tflops[precision], default="")


def cached(device: Device) -> GpuCeilings | None:
    """Return a card's cached peaks on this machine, None if there are none; measure nothing."""
    with contextlib.suppress(OSError, ConvertError):  # not measured, or a file of another version
        return from_json(_path(device).read_bytes(), GpuCeilings)
    return None


def get_or_measure(device: Device, place: Place, held: DeviceLock) -> GpuCeilings | None:
    """Return a card's peaks, cached or measured now, None if that fails. Raises only Cancelled."""
    if peaks := cached(device):
        return peaks
    path = _path(device)
    failed = path.with_suffix(".failed")
    with contextlib.suppress(OSError):
        if time.time() - failed.stat().st_mtime < RETRY_S:
            return None
    why, peaks = "", None
    try:
        peaks = _measure(device, place, held)
    except Cancelled:
        raise
    except (PeerError, PeerDied, EnvironmentFault, ConvertError, OSError) as error:
        why = str(error)
    with contextlib.suppress(OSError):  # without the file, the next call measures again
        path.parent.mkdir(parents=True, exist_ok=True)
        if peaks is None:
            failed.write_text(f"{plain(why, 400)}\n")
        else:
            path.write_bytes(to_json(peaks))
    return peaks


def evidence(peaks: GpuCeilings | None, device: Device, target: Target) -> Iterator[Evidence]:
    """Yield the measured rates that bound a target, for a verdict."""
    if peaks is None:
        return
    card, precision = datasheets.find(device.name), peaks.precision(target)
    yield Evidence(kind="ceiling", detail=f"copy {_rate(peaks.copy_gb_per_s, 'B/s')} measured"
                   + _share(peaks.copy_gb_per_s, card.gb_per_s if card else None, "B/s"))
    if precision:
        peak = getattr(card, precision, None) or (
            card.bf16 if card and precision == "fp16" else None)
        tflops = peaks.tflops[precision]
        yield Evidence(kind="ceiling", detail=f"{precision} products "
                       f"{_rate(tflops * 1e3, 'FLOP/s')} measured"
                       + _share(tflops * 1e3, peak and peak * 1e3, "FLOP/s"))


def summary(peaks: GpuCeilings) -> str:
    """Return a card's peaks in a few words, for a listing."""
    best = [name for name in ("bf16", "fp16", "fp32") if name in peaks.tflops][:1]
    return ", ".join([f"copy {_rate(peaks.copy_gb_per_s, 'B/s')}",
                      *(f"{name} {_rate(peaks.tflops[name] * 1e3, 'FLOP/s')}" for name in best)])


def _measure(device: Device, place: Place, held: DeviceLock) -> GpuCeilings:
    until = time.monotonic() + WALL_S
    home = scratch_inside(Path(place.scratch), "home-ceilings")
    inside = Confine(writable=(str(home),), nodes=place.nodes)
    for confine in (inside, None):  # some GPUs work only outside namespaces
        limits = Limits(wall_s=max(0.1, until - time.monotonic()), output_bytes=1 << 16,
                        memory_bytes=16 << 30)
        with Peer("measure_peaks", cwd=home, limits=limits, python=place.python, lock=held,
                  env=clean_env(place.env, home=home), confine=confine, zygote=place.zygote,
                  cancel=place.cancel) as child:
            ready = child.ask("ready", device=place.device)
            if not ready.get("no_gpu"):
                return _ask_all(child, device, str(ready.get("torch", "")))
    raise EnvironmentFault(f"torch reaches no GPU: {plain(str(ready['no_gpu']), 200)}")


def _ask_all(child: Peer, device: Device, torch: str) -> GpuCeilings:
    """Ask for one rate after the other while there is time, and keep the answers."""
    until = time.monotonic() + BEGIN_S
    card = datasheets.find(device.name)
    least = TIMES_CACHE * card.cache_bytes if card is not None else 0.0
    copies = [size for size in COPIES if size >= least] or COPIES[-1:]
    questions: list[tuple[str, dict[str, Any]]] = [
        *(("copy", {"op": "copy", "bytes": size}) for size in copies),
        *((precision, {"op": "product", "precision": precision, "n": n})
          for precision in PRECISIONS for n in SQUARES)]
    best: dict[str, float] = {}
    missing: dict[str, str] = {}
    alive = True
    for name, question in questions:
        if not alive or time.monotonic() > until:
            missing.setdefault(name, "out of time")
            continue
        try:
            answer = child.ask(**question)
            rate = answer.get("gb_per_s", answer.get("tflops"))
            if not isinstance(rate, float) or not 0 < rate < math.inf:
                raise PeerError(INVALID_ANSWER)
            best[name] = max(rate, best.get(name, 0.0))
        except PeerError as error:
            missing[name] = plain(error.what, 200)
        except PeerDied as error:
            alive, missing[name] = False, plain(error.what, 200)
    copy = best.pop("copy", None)
    if copy is None:
        raise PeerError(missing["copy"])
    return GpuCeilings(
        card=device.name, torch=plain(torch, 60), copy_gb_per_s=copy, tflops=best,
        missing={name: why for name, why in missing.items() if name in {*PRECISIONS} - {*best}},
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def _path(device: Device) -> Path:
    """Return the cache file of a card: it depends on card, driver and the measuring program."""
    module = {"nvidia": "nvidia", "amd": "amdgpu"}.get(device.kind, "")
    driver = read_text(f"/sys/module/{module}/version").strip() if module else ""
    identity = to_json([device.name, device.uuid, driver]) + SOURCE.read_bytes()
    key = hashlib.sha256(identity).hexdigest()[:16]
    return cache_directory() / f"ceilings-gpu-{key}.json"


def _share(rate: float, published: float | None, unit: str) -> str:
    return "" if not published else \
        f", {rate / published:.0%} of the published {_rate(published, unit)}"


def _rate(giga: float, unit: str) -> str:
    """Format a rate given in units of 1e9 a second."""
    return f"{giga / 1e3:.3g} T{unit}" if giga >= 1e3 else f"{giga:.3g} G{unit}"
