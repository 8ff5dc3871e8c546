"""The ceilings and measured peaks of a session's device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from harness.isolation.device_lock import DeviceLock
from harness.roofline import ceilings, measured_peaks
from harness.roofline.ceilings import Ceilings
from harness.roofline.measured_peaks import GpuCeilings
from harness.runners.session import Session


def ceilings_of(session: Session, on_wait: Callable[[str], None] | None = None) -> Ceilings | None:
    """Return the device's ceilings; a CPU's are measured under its lock, once per machine.

    Raises EnvironmentFault when a CPU cannot be measured.
    """
    with session.lock(on_wait) if session.on_cpu else nullcontext():
        return ceilings.of_device(session.device, session.target, session.folder("ceilings"))


def peaks_of(session: Session, held: DeviceLock | None, on_measure: Callable[[], None],
             ) -> GpuCeilings | None:
    """Return a card's peaks, measured now under the lock `held` if they never were.

    None on a CPU, for several cards, and where they cannot be measured. On a card that takes a
    single process they are only read from the cache: this session has the card's process already.
    """
    if session.on_cpu or session.several:
        return None
    peaks = measured_peaks.cached(session.device)
    if peaks is not None or held is None or session.in_process:
        return peaks
    on_measure()
    session.runners.wait_profiles()
    session.runners.wait_contexts()
    return measured_peaks.get_or_measure(session.device, session.place, held, zygote=session.zygote,
                                         cancel=session.cancel)
