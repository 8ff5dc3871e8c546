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

FAILS = Errors(absolute=0.0, relative=None, bad=1)


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
        self._unusable = ""
        self._is_candidate = False

    def errors(self, case: Case, errors: Errors, candidate: Kernel,
               held: DeviceLock | None) -> Errors | None:
        """Return the baseline's errors on a case; None if it does not run on normal inputs.

        They are the candidate's `errors` if that has the baseline's code.
        """
        key = case.id, self._oracle.version(case)
        if key not in self._errors:
            self._errors[key] = self._run(case, errors, candidate, held)
        return self._errors[key]

    def is_stable(self, case: Case, candidate: Kernel, held: DeviceLock | None) -> bool:
        """Return whether three calls of the baseline give the same outputs, bit for bit."""
        peer = self._start(candidate, held)
        if peer is None:
            return not self._is_candidate
        digests = [self._judge(peer, case).digests for _ in range(3)]
        return len(set(digests)) == 1

    def judge_alone(self, case: Case, held: DeviceLock | None) -> tuple[Kernel, Errors] | None:
        """Return the baseline's kernel and its errors on a case; None if it does not run."""
        try:
            kernel = self._kernel()
            self._peer = self._peer or self._session.runners.start(kernel, lock=held,
                                                                 yields=self._session.yields)
            return kernel, self._judge(self._peer, case)
        except (BuildError, EnvironmentFault, PeerError, PeerDied):
            self.close()
            return None

    def _judge(self, peer: Peer, case: Case) -> Errors:
        answer = peer.ask("call", tensors=case.tensors)
        return self._oracle.judge(case, answer.get("outputs"))

    def _run(self, case: Case, errors: Errors, candidate: Kernel,
             held: DeviceLock | None) -> Errors | None:
        peer = self._start(candidate, held)
        if self._is_candidate:
            return errors
        if peer is None:
            self._note("the baseline does not run, so the usual tolerances apply: "
                       + self._unusable)
            return None
        try:
            return self._judge(peer, case)
        except (PeerError, PeerDied) as error:
            self.close()
            self._note(f"class {case.config_class}: the baseline fails on {case.distribution} "
                       f"inputs: {error.what}")
            return None if case.distribution == "normal" else FAILS

    def _start(self, candidate: Kernel, held: DeviceLock | None) -> Peer | None:
        """Return a runner of the baseline; None if it is the candidate or does not run."""
        try:
            kernel = self._kernel()
            self._is_candidate = kernel.identity == candidate.identity
            if self._peer is None and not self._unusable and not self._is_candidate:
                self._peer = self._session.runners.start(kernel, lock=held,
                                                       yields=self._session.yields)
        except (BuildError, EnvironmentFault, PeerError, PeerDied) as error:
            self._unusable = error.what
        return None if self._is_candidate else self._peer

    def _kernel(self) -> Kernel:
        key = str(self._tree)
        if key not in self._built:
            self._built[key] = self._session.make(self._tree, "baseline")
        return self._built[key]

    def close(self) -> None:
        """End the process; its results are kept."""
        if self._peer is not None:
            self._peer.close()
            self._peer = None
