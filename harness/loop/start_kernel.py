"""The start kernel of a loop, with which every trial is compared, and what its failures mean.

No configuration is blamed for a start that does not run, and no prior learns from such a trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from harness.case import Case
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.errors import DeviceFault, IncumbentFault, KoptError
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import PeerDied, PeerError
from harness.runners.session import Session
from harness.timing.paired_blocks import TamperedTiming

FAILURES = (BuildError, TamperedTiming, PeerError, PeerDied)
"""What a kernel that does not work raises."""
TRIES = 2
"""Processes in which the start is tried: the first may have been killed from outside."""


def fault(session: Session, error: KoptError, *, ran: bool) -> IncumbentFault | DeviceFault:
    """Return the error that ends a loop when its start fails in TRIES processes.

    `ran`: it has run on this card in this loop. Then the card is to blame; another may work.
    """
    if ran and not session.on_cpu:
        return DeviceFault(f"the loop's start ran there before and now fails: {error.what}",
                           where=session.device.id)
    return IncumbentFault(f"the loop's start does not run: {error.what}",
                          where=session.target.source)


class StartKernel:
    """The start, where each side of a pair has a process of its own."""

    def __init__(self, session: Session, kernel: Kernel, cases: Sequence[Case]) -> None:
        self.session, self.kernel, self.cases = session, kernel, cases
        self._ran = False

    @contextmanager
    def check_on_failure(self, held: DeviceLock | None) -> Iterator[None]:
        """When a trial fails, check the start alone. Raises IncumbentFault and DeviceFault."""
        try:
            yield
        except (PeerError, PeerDied):
            if self.session.measurable:  # otherwise the start is not run with trials
                self._run_alone(held)
            raise
        self._ran = self.session.measurable

    def _run_alone(self, held: DeviceLock | None) -> None:
        runners, yields = self.session.runners, self.session.yields
        for number in range(1, TRIES + 1):
            try:
                with runners.start(self.kernel, lock=held, yields=yields) as runner:
                    for case in self.cases:
                        runner.ask("call", case=case.id, tensors=case.tensors)
                return
            except FAILURES as error:
                if number == TRIES:
                    raise fault(self.session, error, ran=self._ran) from None
