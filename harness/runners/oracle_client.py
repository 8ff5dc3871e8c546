"""The oracle: a process that makes inputs from secret seeds and judges outputs against them.

Expected values never leave that process. `harness/child/oracle` is its program.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.case import Case, Errors, TrivialAnswer
from harness.compile import c_compiler, compiler_cache, kernel
from harness.compile.c_compiler import BuildError
from harness.compile.place import Place
from harness.compile.stream_usage import one_stream
from harness.errors import KoptError
from harness.formats.json_codec import convert, to_builtins, to_json
from harness.formats.text import plain
from harness.isolation.confinement import Confine
from harness.isolation.device_lock import DeviceLock
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import NotJudgedHere, Peer, PeerDied, PeerError
from harness.isolation.supervisor_start import KeptProcess
from harness.runners.context_queue import ONE_QUEUE
from harness.runners.kept_oracle import KEPT_S, OracleShelf
from harness.tasks.target import ConfigClass, Target
from harness.verdict import LIBRARIES, Evidence

ORACLE_LIMITS = Limits(wall_s=366 * 86_400.0, output_bytes=1 << 20, file_bytes=1 << 40)
"""The oracle lives as long as its evaluation or loop, whose own limit is shorter."""


DEVICE_ERRORS = re.compile(r"\b(CUDA|HIP) error\b|out of memory|^AcceleratorError", re.IGNORECASE)


class OracleError(KoptError):
    """The reference itself failed: an error of the task, not of the candidate. Exit code 2.

    `may_pass`: a retry may succeed, because its process or device failed, not its program.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str, may_pass: bool = False) -> None:
        super().__init__(what, where=where)
        self.may_pass = may_pass


class Oracle:
    """A client of the oracle process; the reference comes from the baseline's tree.

    With a shelf, it takes the idle oracle from there if that was started with the same reference,
    and puts it back at the end if `may_leave` allows that.
    """

    def __init__(self, target: Target, reference_tree: Path, scratch: Path, place: Place, *,
                 lock: DeviceLock | None = None, shelf: OracleShelf | None = None,
                 may_leave: Callable[[], bool] = lambda: True) -> None:
        source = reference_tree / target.reference_file
        single = target.num_gpus == 1 and one_stream(reference_tree, source)
        self.target = target
        self.interpret = place.interpret
        self._versions: dict[str, int] = {}
        self._shapes: dict[str, tuple[tuple[int, ...], ...]] = {}
        self._asking = threading.Lock()
        scratch.mkdir(parents=True, exist_ok=True)
        python = None if target.language == "c" else place.python
        env = clean_env(compiler_cache.private(
            {**(ONE_QUEUE if single else {}), **place.env,
             **({"TRITON_INTERPRET": "1"} if place.interpret else {}),
             "TRITON_HOME": str(scratch)}, scratch), home=scratch)
        confine = Confine(writable=(str(scratch),), nodes=place.nodes)
        job = {"reference": str(source), "function": target.reference_function,
               "library": "numpy" if target.language == "c" else "torch",
               "device": place.device, "scratch": str(scratch), "float64": target.float64,
               "dtypes": sorted({arg.dtype for arg in target.args} | set(target.output_dtypes)),
               "c_reference": self._c_reference(reference_tree, scratch),
               "baseline": None if not target.by_baseline else kernel.make(
                   target, reference_tree, "reference", place, base=reference_tree).job()}

        def peer(kept: KeptProcess | None = None) -> Peer:
            return Peer("oracle.oracle", cwd=reference_tree, limits=ORACLE_LIMITS, python=python,
                        env=env, lock=lock, yields=place.yields, zygote=place.zygote,
                        cancel=place.cancel, takes_descriptors=True, confine=confine, kept=kept)

        self._shelf, self._may_leave, self._key = shelf, may_leave, hashlib.sha256(to_json(
            [python, env, confine, job])).hexdigest()
        waiting = shelf.take(self._key) if shelf is not None else None
        if waiting is not None:
            kept, self._libraries = waiting
            self._peer = peer(kept)
            try:
                self.ask("reset")
            except OracleError:  # it has ended meanwhile, or its card has failed
                self._peer.close()
                waiting = None
        if waiting is None:
            self._peer = peer()
            self._libraries = convert(self.ask("load", **job)["libraries"], dict[str, str])
        versions = [f"{name} {version}" for name, version in self._libraries.items()]
        self.evidence = [Evidence(kind=LIBRARIES, detail=plain(", ".join(versions), 200))] \
            if versions else []
        """The versions of the libraries of the target's Python; none for C."""

    def make(self, config_class: ConfigClass, distribution: str, first: Case | None = None,
             changed: Mapping[str, Mapping[str, Any]] | None = None) -> Case:
        """Draw a case from a new secret seed; `first` is an earlier case of the same class.

        `changed` gives by argument name the fields to replace, such as a value or a memory layout.
        Raises OracleError if the reference fails on normal inputs; if on others, sets `skip`.
        """
        seed = secrets.randbits(48)
        case_id = f"case-{secrets.token_hex(8)}"
        tensors = tuple({**tensor, **(changed or {}).get(tensor["name"], {})}
                        for tensor in self._tensors(config_class))
        answer = self.ask("make", case=case_id, seed=seed, distribution=distribution,
                          tensors=tensors, dtypes=self.target.output_dtypes,
                          first="" if first is None else first.id,
                          may_skip=distribution != "normal")
        self._shapes[case_id] = convert(answer["shapes"], tuple[tuple[int, ...], ...])
        return Case(id=case_id, config_class=config_class.name, distribution=distribution,
                    tensors=tensors, skip=plain(answer["skip"], 300),
                    notes=tuple(plain(note, 200) for note in answer["notes"]),
                    controls=convert(answer["controls"], tuple[TrivialAnswer, ...]))

    def largest_output(self, case: Case) -> int:
        """Return the number of elements of a case's largest output."""
        return max(map(math.prod, self._shapes[case.id]), default=0)

    def returned_shapes(self, case: Case) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of the values that a kernel returns for a case."""
        written = sum(tensor["role"] in ("output", "inout") for tensor in case.tensors)
        return self._shapes[case.id][written:] if self.target.returns else ()

    def judge(self, case: Case, memory: str, slot: int, returned: Sequence[Mapping[str, Any]],
              known: Errors | None = None, *, outputs_only: bool = False) -> Errors:
        """Compare the outputs in a slot of a memory with the expected values.

        `returned` says what the kernel returned and where it is. Raises PeerError if a returned
        dtype is not the declared one. Outputs identical to those of `known` have the same errors.
        """
        if not self.interpret:
            for region, declared in zip(returned, self.target.return_dtypes, strict=False):
                if region["dtype"] != declared:
                    raise PeerError(f"returned {region['dtype']}, not {declared}")
        with self._asking:
            answer = self._peer.ask(
                "judge", case=case.id, memory=memory, slot=slot, returned=returned,
                outputs_only=outputs_only, known=[] if known is None else known.digests)
        errors = convert(answer, Errors)
        return errors if known is None or known.digests != errors.digests else replace(
            known, changed=errors.changed)

    def sensitivity(self, case: Case, part: float) -> tuple[float, ...]:
        """Change every input by `part` of itself; return the typical relative change by output.

        Nine in ten values of the output do not exceed it.
        """
        answer = self.ask("sensitivity", case=case.id, part=part, seed=secrets.randbits(48))
        return convert(answer["typical"], tuple[float, ...])

    def inner_sensitivity(self, case: Case, part: float) -> tuple[tuple[float, ...], str]:
        """Let each operation of the reference round by `part`; return the typical relative changes.

        The second value is why the reference cannot run so, "" if it can.
        """
        answer = self.ask("inner_sensitivity", case=case.id, part=part, seed=secrets.randbits(48))
        return convert(answer["typical"], tuple[float, ...]), plain(answer["problem"])

    def exchange(self, case: Case, moves: Mapping[str, Mapping[int, int]]) -> None:
        """Assign elements within a case's input tensors, all at once: new[to] = old[from].

        Elements are counted in the flattened tensor. Expected values follow.
        Raises OracleError when the reference fails on the new contents.
        """
        self._versions[case.id] = self.version(case) + 1
        self.ask("exchange", case=case.id, moves={
            name: [list(pairs), list(pairs.values())] for name, pairs in moves.items()})

    def version(self, case: Case) -> int:
        """Return how often a case's contents were changed."""
        return self._versions.get(case.id, 0)

    def drop(self, case: Case) -> None:
        """Make the oracle forget a case that is not needed any more."""
        self.ask("drop", case=case.id)

    def new_case(self, like: Case) -> Case:
        """Return a case of the same class; its contents are those of a slot, not drawn for it."""
        case_id = f"case-{secrets.token_hex(8)}"
        self._shapes[case_id] = self._shapes[like.id]
        return replace(like, id=case_id, distribution="slot", controls=())

    def _tensors(self, config_class: ConfigClass) -> tuple[dict[str, Any], ...]:
        return tuple({**to_builtins(tensor), "nbytes": tensor.nbytes,
                      "config_class": config_class.name}
                     for tensor in self.target.tensors(config_class))

    def _c_reference(self, tree: Path, scratch: Path) -> str:
        """Build the task's reference if it is in C; return the library, else ""."""
        if not self.target.has_c_reference:
            return ""
        library = scratch / "reference.so"
        try:
            c_compiler.build_reference(self.target, tree, library)
        except BuildError as error:
            raise OracleError(f"the reference does not compile: {error.what}",
                              where=self.target.reference) from None
        return str(library)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the oracle run, between blocks, while this process measures on the CPU."""
        self._peer.exempt(True)
        try:
            yield
        finally:
            self._peer.exempt(False)

    def share(self, op: str, **fields: object) -> tuple[dict[str, Any], list[int]]:
        """Send a request whose answer carries file descriptors; the caller closes them."""
        with self._asking:
            return self._ask(op, fields), self._peer.take_received()

    def ask(self, op: str, **fields: object) -> dict[str, Any]:
        """Send a request. Raises OracleError when the reference fails or the process ends."""
        with self._asking:
            return self._ask(op, fields)

    def _ask(self, op: str, fields: Mapping[str, object]) -> dict[str, Any]:
        try:
            return self._peer.ask(op, **fields)
        except NotJudgedHere:
            raise
        except PeerError as error:
            raise OracleError(f"the reference failed: {error.what}", where=self.target.reference,
                              may_pass=bool(DEVICE_ERRORS.search(error.what))) from None
        except PeerDied as error:
            raise OracleError(f"the reference {error.what}", where=self.target.reference,
                              may_pass=True) from None

    def close(self) -> None:
        """End the oracle, or leave it on the shelf."""
        if self._shelf is None or not self._leave(self._shelf):
            self._peer.close()

    def _leave(self, shelf: OracleShelf) -> bool:
        with self._asking:  # until the end: the next owner must not get a late answer
            try:
                self._ask("reset", {})
                return self._may_leave() and self._peer.leave(
                    KEPT_S, lambda kept: shelf.put(kept, self._key, self._libraries))
            except KoptError:  # it has failed
                return False

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
