"""The oracle: a process that makes inputs from secret seeds and judges outputs against them.

Expected values never leave that process. `harness/child/oracle` is its program.
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.case import Case, Errors, TrivialAnswer
from harness.compile import stream_usage
from harness.compile.kernel import Place
from harness.errors import KoptError
from harness.formats.json_codec import convert, to_builtins
from harness.formats.text import plain
from harness.isolation.device_lock import DeviceLock, Turnstile
from harness.isolation.guard import Confine, Limits, clean_env
from harness.isolation.rpc import Peer, PeerDied, PeerError, decode_answer
from harness.isolation.zygote_client import Zygote
from harness.runners.context_queue import ONE_QUEUE
from harness.target import DTYPE_BYTES, MAX_ELEMENTS, ConfigClass, Target, Tensor

ORACLE_LIMITS = Limits(wall_s=366 * 86_400.0, output_bytes=1 << 20)
"""The oracle lives as long as its evaluation or loop, whose own limit is shorter."""


class OracleError(KoptError):
    """The reference itself failed: an error of the task, not of the candidate. Exit code 2."""

    exit_code = 2


@dataclass(frozen=True)
class _Written:
    """A tensor that a runner reports to have written."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if not all(0 <= size <= MAX_ELEMENTS for size in self.shape):
            raise ValueError("not a shape")


def files_to_judge(case: Case, written: object, *, outputs_only: bool = False,
                ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (outputs, inputs) for the oracle, at the paths where the runner had to write them.

    Raises PeerError if the runner did not write what was declared.
    """
    tensors_written = decode_answer(written, tuple[_Written, ...])
    names = [tensor.name for tensor in tensors_written if tensor.name != "return"]
    skipped = ("scalar", "input") if outputs_only else ("scalar",)
    tensors = [tensor for tensor in case.tensors if tensor["role"] not in skipped]
    if names != [tensor["name"] for tensor in tensors]:
        raise PeerError("did not return every tensor")
    declared = [{"name": t["name"], "dtype": t["dtype"], "shape": list(t["shape"]),
                 "nbytes": t["nbytes"], "path": t["after"], "role": t["role"]} for t in tensors]
    returned = []
    for index, tensor in enumerate(entry for entry in tensors_written if entry.name == "return"):
        if tensor.dtype not in DTYPE_BYTES:
            raise PeerError(f"returned the unknown dtype {plain(tensor.dtype, 40)}")
        returned.append({"name": "return", "dtype": tensor.dtype, "shape": list(tensor.shape),
                         "nbytes": math.prod(tensor.shape) * DTYPE_BYTES[tensor.dtype],
                         "path": f"{case.tensors[0]['after']}.return{index}"})
    return ([entry for entry in declared if entry["role"] != "input"] + returned,
            [entry for entry in declared if entry["role"] == "input"])


class Oracle:
    """A client of the oracle process; the reference comes from the baseline's tree."""

    def __init__(self, target: Target, reference_tree: Path, scratch: Path, place: Place, *,
                 lock: DeviceLock | None = None, yields: Turnstile | None = None,
                 zygote: Zygote | None = None, cancel: threading.Event | None = None) -> None:
        source = reference_tree / target.reference_file
        single = target.num_gpus == 1 and stream_usage.one_stream(reference_tree, source)
        self.target = target
        self._interpret = place.interpret
        self.scratch = scratch
        self._versions: dict[str, int] = {}
        (scratch / "out").mkdir(parents=True, exist_ok=True)
        self._peer = Peer("oracle.oracle", cwd=reference_tree, limits=ORACLE_LIMITS,
                          python=None if target.language == "c" else place.python,
                          env=clean_env({**(ONE_QUEUE if single else {}), **place.env},
                                        home=scratch),
                          lock=lock, yields=yields, zygote=zygote, cancel=cancel,
                          confine=Confine(writable=(str(scratch),), nodes=place.nodes))
        library = "numpy" if target.language == "c" else "torch"
        self._ask("load", reference=str(source),
                  function=target.reference_function, library=library, device=place.device,
                  float64=target.float64)

    def make(self, config_class: ConfigClass, distribution: str,
             first: Case | None = None) -> Case:
        """Draw a case from a new secret seed; `first` is an earlier case of the same class.

        Raises OracleError if the reference fails on normal inputs; on others, the case is skipped.
        """
        seed = secrets.randbits(48)
        case_id = f"{config_class.name}-{distribution}-{secrets.token_hex(4)}"
        tensors = tuple(self._describe(tensor, case_id)
                        for tensor in self.target.tensors(config_class))
        answer = self._ask("make", case=case_id, seed=seed, distribution=distribution,
                           tensors=tensors, dtypes=self.target.output_dtypes,
                           first="" if first is None else first.id,
                           may_skip=distribution != "normal")
        return Case(id=case_id, config_class=config_class.name, distribution=distribution,
                    tensors=tensors, skip=plain(answer["skip"], 200),
                    controls=convert(answer["controls"], tuple[TrivialAnswer, ...]))

    def judge(self, case: Case, written: object, known: Errors | None = None, *,
              outputs_only: bool = False) -> Errors:
        """Compare a candidate's outputs with the expected values. Raises PeerError if invalid.

        `written` is the runner's own report: for a declared tensor only its presence counts.
        Outputs that are bit for bit those of `known` have the same errors.
        """
        outputs, inputs = files_to_judge(case, written, outputs_only=outputs_only)
        returned = [output["dtype"] for output in outputs if output["name"] == "return"]
        if not self._interpret:
            for actual, declared in zip(returned, self.target.return_dtypes, strict=False):
                if actual != declared:
                    raise PeerError(f"returned {actual}, not {declared}")
        answer = self._peer.ask("judge", case=case.id, outputs=outputs, inputs=inputs,
                                known=[] if known is None else known.digests)
        errors = convert(answer, Errors)
        return errors if known is None or known.digests != errors.digests else replace(
            known, changed=errors.changed)

    def sensitivity(self, case: Case, part: float) -> tuple[float, ...]:
        """Return, by output, the relative change that nine in ten values do not exceed.

        Every input is changed by this `part` of itself.
        """
        answer = self._ask("sensitivity", case=case.id, part=part, seed=secrets.randbits(48))
        return convert(answer["typical"], tuple[float, ...])

    def exchange(self, case: Case, moves: Mapping[str, Mapping[int, int]]) -> None:
        """Assign elements within a case's input tensors, all at once: new[to] = old[from].

        Elements are counted in the flattened tensor. Files, hashes and expected values follow.
        Raises OracleError when the reference fails on the new contents.
        """
        self._versions[case.id] = self.version(case) + 1
        self._ask("exchange", case=case.id, moves={
            name: [list(pairs), list(pairs.values())] for name, pairs in moves.items()})

    def version(self, case: Case) -> int:
        """Return how often a case's contents were changed."""
        return self._versions.get(case.id, 0)

    def drop(self, case: Case) -> None:
        """Delete a case that is not needed any more, with the files of its inputs."""
        self._ask("drop", case=case.id, paths=[tensor["path"] for tensor in case.tensors])

    def _describe(self, tensor: Tensor, case_id: str) -> dict[str, Any]:
        base = self.scratch / f"{case_id}-{tensor.name}"
        after = self.scratch / "out" / f"{case_id}-{tensor.name}"
        return {**to_builtins(tensor), "nbytes": tensor.nbytes, "path": f"{base}.in",
                "after": str(after)}

    def _ask(self, op: str, **fields: object) -> dict[str, Any]:
        try:
            return self._peer.ask(op, **fields)
        except PeerError as error:
            raise OracleError(f"the reference failed: {error.what}",
                              where=self.target.reference) from None
        except PeerDied as error:
            raise OracleError(f"the reference {error.what}", where=self.target.reference) from None

    def close(self) -> None:
        self._peer.close()

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
