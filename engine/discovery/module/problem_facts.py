"""Facts about a PyTorch module, learned by a guarded process that runs `harness/child/module`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.doctor import declared_packages
from engine.doctor.declared_packages import DeclaredPackage
from harness.errors import EnvironmentFault, InputError
from harness.isolation.confinement import Confine
from harness.isolation.guard import clean_env
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.isolation.zygote_client import Zygote
from harness.tasks.target import Structure

PROGRAM = "module.module_facts"
LIMITS = Limits(wall_s=300.0, output_bytes=1 << 20, memory_bytes=32 << 30)
Size = int | tuple[int, ...]


class LearnedArg(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of `get_inputs` or a weight; `why` says where its bounds and structure come from.

    `written` marks a buffer that a call changes.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    low: float | None
    high: float | str | None
    why: str
    structure: Structure | None
    weight: bool
    written: bool


class LearnedOutput(msgspec.Struct, frozen=True, kw_only=True):
    dtype: str
    shape: tuple[int, ...]


class ModuleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one module; `call` are the expressions of its positional arguments.

    `all_sizes` maps each size to its value in the file and the value in use; `sizes` are those that
    occur in shapes. `init` and `init_named` are the constructor's arguments as Python literals.
    """

    args: tuple[LearnedArg, ...]
    call: tuple[str, ...]
    init: str
    init_named: str
    weights: tuple[str, ...]
    training: bool
    sizes: dict[str, int]
    all_sizes: dict[str, tuple[Size, Size]]
    outputs: tuple[LearnedOutput, ...]
    names: tuple[str, ...] = ()
    """The sorted names of the values in a dict that the module returns."""
    bytes: int
    flops: int | None
    float64: bool
    notes: tuple[str, ...]

    @property
    def changed(self) -> dict[str, tuple[Size, Size]]:
        """The sizes whose values in use are not those of the file."""
        return {name: pair for name, pair in self.all_sizes.items() if pair[0] != pair[1]}


def learn(file: Path, scratch: Path, *, sizes: Mapping[str, Size], small: bool,
          training: bool | None, zygote: Zygote | None = None) -> ModuleFacts:
    """Run a file's functions under the guard. Raises InputError if it cannot be a task.

    Raises EnvironmentFault if torch is not installed.

    `small` chooses sizes that suit a CPU; None for `training` prefers training mode, as KernelBench
    does.
    """
    try:
        with Peer(PROGRAM, cwd=file.parent, limits=LIMITS, env=clean_env(home=scratch),
                  zygote=zygote, confine=Confine(writable=(str(scratch),))) as child:
            answer = child.ask("learn", path=str(file), sizes=dict(sizes), small=small,
                               training=training)
        return msgspec.convert(answer, ModuleFacts)
    except PeerDied as error:
        if package := _absent(error):
            raise EnvironmentFault(f"{package.name} is not installed for {sys.executable}, and "
                                   f"{file.name} needs it", where=str(file),
                                   fix=package.fix) from None
        raise InputError(error.what, where=str(file), fix="" if error.outcome.ended == "exit" else
                         "set a size with --size NAME=VALUE") from None
    except PeerError as error:
        raise InputError(error.what.removeprefix("Unsupported: "), where=str(file),
                         fix="set a size with --size NAME=VALUE" if "sizes" in error.what
                         else "") from None
    except msgspec.ValidationError as error:
        raise InputError(f"the module's facts are not usable: {error}", where=str(file)) from None


def _absent(died: PeerDied) -> DeclaredPackage | None:
    """Return the package of the extra `torch` whose absence ended the process, None if none did."""
    printed = died.outcome.stderr.decode(errors="replace")
    return next((package for package in declared_packages.declared("torch")
                 if f"No module named '{package.module}'" in printed), None)
