"""Run the baseline's kernel on the inputs of a case, where its own error decides a verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.case import Case, Errors
from harness.compile.c_compiler import BuildError
from harness.compile.kernel import Kernel
from harness.errors import EnvironmentFault
from harness.isolation.device_lock import DeviceLock
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.runners.oracle_client import Oracle
from harness.runners.session import Session
from harness.runners.slots.case_memory import CaseMemory


def _names_of(kind: type[BaseException]) -> set[str]:
    """Return the names of an exception and of all that are derived from it."""
    return {kind.__name__}.union(*map(_names_of, kind.__subclasses__()))


MACHINE_ERRORS = _names_of(OSError) | {"MemoryError", "OutOfMemoryError"}
"""Exceptions of a process that lacks a file, memory or permission."""
UNUSABLE = "the baseline does not run, so the usual tolerances apply: "


class BaselineRunner:
    """The baseline's kernel, built and started when it is first needed.

    `built` are kernels that exist already, by the tree they come from; `note` receives remarks for
    the verdict.
    """

    def __init__(self, session: Session, oracle: Oracle, tree: Path, built: dict[str, Kernel],
                 note: Callable[[str], None]) -> None:
        self._session, self._oracle = session, oracle
        self._tree, self._built, self._note = tree, built, note
        self._peer: Peer | None = None
        self._errors: dict[tuple[str, int], Errors | None] = {}
        self._unusable = self._last = ""

    def errors(self, case: Case, errors: Errors, candidate: Kernel,
               held: DeviceLock | None) -> Errors | None:
        """Return the baseline's errors on a case; None if the baseline does not run on it.

        These are the candidate's own `errors` if it has the baseline's code. Raises
        EnvironmentFault if the baseline fails because of the machine.
        """
        key = case.id, self._oracle.version(case)
        if key not in self._errors:
            self._errors[key] = errors if self.has_code_of(candidate) else self._run(case, held)
        return self._errors[key]

    def is_stable(self, case: Case, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Return whether three calls of the baseline give the same outputs, bit for bit.

        True if the baseline does not run; False if the candidate has the baseline's code.
        """
        if self.has_code_of(candidate):
            return False
        answers = self._answers(case, held, calls=3)
        return answers is None or len({answer.digests for answer in answers}) == 1

    def run_alone(self, case: Case, held: DeviceLock | None) -> tuple[Kernel, Errors] | None:
        """Return the baseline's kernel and its errors on a case; None if it does not run."""
        errors = self._run(case, held)
        return None if errors is None else (self.kernel(), errors)

    def failure(self, case: Case, held: DeviceLock | None) -> str:
        """Return the error with which the baseline fails on a case, empty if it runs."""
        self._last = ""
        self._answers(case, held)
        return self._unusable or self._last

    def has_code_of(self, candidate: Kernel) -> bool:
        """Return whether a candidate has the baseline's code."""
        try:
            return self.kernel().identity == candidate.identity
        except BuildError as error:
            self._unusable = error.what
            return False

    def _run(self, case: Case, held: DeviceLock | None) -> Errors | None:
        answers = self._answers(case, held)
        return None if answers is None else answers[0]

    def _answers(self, case: Case, held: DeviceLock | None, *,
                 calls: int = 1) -> list[Errors] | None:
        """Return the errors of several calls; None if two processes in a row fail, or none starts.

        Such a failure excuses no candidate. Raises EnvironmentFault if it comes from the machine.
        """
        for again in (False, True):
            try:
                peer = self._start(held)
                return None if peer is None else [
                    CaseMemory(self._oracle, peer, case).call(case) for _ in range(calls)]
            except (PeerError, PeerDied) as error:
                running, self._peer = self._peer, None
                if running is not None:
                    running.close()
                if again:
                    self._explain(case, error, started=running is not None)
        return None

    def _explain(self, case: Case, error: PeerError | PeerDied, *, started: bool) -> None:
        """Note why the baseline does not run. Raises EnvironmentFault for reasons of the machine.
        """
        where = f"class {case.config_class}: the baseline fails on {case.distribution} inputs"
        if _is_of_the_machine(error):
            raise EnvironmentFault(f"{where}, twice in a row: {error.what}",
                                   where=self._session.target.source,
                                   fix="check free space, memory and the limits of its processes")
        self._last = error.what
        if started:
            self._note(f"{where}, which does not excuse a candidate: {error.what}")
        else:
            self._unusable = error.what
            self._note(f"{UNUSABLE}{error.what}")

    def _start(self, held: DeviceLock | None) -> Peer | None:
        """Return a runner of the baseline, None if it cannot be built or loaded."""
        try:
            kernel = self.kernel()
        except BuildError as error:
            self._unusable = error.what
        if self._unusable:
            self._note(f"{UNUSABLE}{self._unusable}")
            return None
        self._peer = self._peer or self._session.runners.start(kernel, lock=held)
        return self._peer

    def kernel(self) -> Kernel:
        """Return the baseline's kernel. Raises BuildError."""
        key = str(self._tree)
        if key not in self._built:
            self._built[key] = self._session.make(self._tree, "baseline")
        return self._built[key]

    def close(self) -> None:
        """End the process; its results are kept."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None


def _is_of_the_machine(error: PeerError | PeerDied) -> bool:
    """Return whether a limit or the operating system ended a call, and not the kernel's code."""
    if isinstance(error, PeerDied):
        return error.outcome.ended != "exit" or error.outcome.was_killed
    return error.kind in MACHINE_ERRORS
