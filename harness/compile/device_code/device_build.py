"""Builds the source of a CUDA or HIP target, once per content.

NVRTC or hiprtc, which come with torch, compile a `__global__` entry to machine code. What NVRTC
refuses, such as functions of the host, nvcc compiles if it is installed; without hiprtc clang's AMD
target compiles HIP. An entry that runs on the host is built into a shared library by
nvcc or hipcc. Builds are kept below the scratch folder, where only this process writes.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.compile import kernel_resources
from harness.compile.c_compiler import BuildError, first_error, run_compiler
from harness.compile.device_code import source_constants, toolkits
from harness.compile.kernel_resources import KernelResources, with_occupancy
from harness.compile.place import Place
from harness.devices import datasheets
from harness.errors import EnvironmentFault, InputError
from harness.formats.json_codec import from_json, to_json
from harness.formats.text import plain
from harness.isolation import guard
from harness.isolation.confinement import Confine
from harness.isolation.process_outcome import Limits
from harness.isolation.rpc import Peer, PeerDied, PeerError
from harness.tasks.target import Target

LIMITS = Limits(wall_s=300.0, output_bytes=8 << 20, memory_bytes=16 << 30, file_bytes=1 << 30)
MAX_BYTES = 256 << 20
"""A tree with more bytes than this is built each time: hashing it costs more than it saves."""

JIT = "host functions are not allowed in JIT mode"
HOST_CODE = ("; NVRTC compiles no function of the host: install nvcc, or move the kernel to a "
             "file of its own")


@dataclass(frozen=True, kw_only=True)
class DeviceBuild:
    """Machine code that a runner can load; `symbol` is the entry's name in it.

    `launches` are the sizes of a `__global__` entry's launch by config class; see `Launch.sizes`.
    """

    path: str
    sha256: str
    identity: str
    symbol: str
    resources: tuple[KernelResources, ...] = ()
    launches: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KeptBuild:
    """The facts of a build that are kept beside its file."""

    sha256: str
    symbol: str
    log: str


_build_locks: dict[Path, threading.Lock] = {}
"""One lock for each build of this process, so that a second request waits for the first."""


class DeviceCompiler:
    """Compiles the sources of one target for a place's architecture, in guarded processes."""

    def __init__(self, target: Target, place: Place) -> None:
        self.target, self.place = target, place
        self.arch = toolkits.arch_of(target.language, place.arch)

    def build(self, tree: Path) -> DeviceBuild:
        """Build the target's source in a tree. Raises BuildError, EnvironmentFault, Cancelled."""
        source = tree / self.target.source
        if not source.is_file():
            raise BuildError(f"{self.target.source} does not exist")
        launches = self._launches(source.read_text(errors="replace"))
        content = _digest(tree)
        key = hashlib.sha256(to_json([
            content, self.arch, self.target.language, self.target.source, self.target.entry,
            self.target.flags, self.target.launch is None, self._compiler_id()])).hexdigest()[:32]
        folder = Path(self.place.scratch) / "builds" / key
        artifact, facts = folder / "kernel.so", folder / "build.json"
        with _build_locks.setdefault(folder, threading.Lock()):
            if not content or not facts.is_file():
                self._make(tree, folder, facts.name, artifact.name)
        kept = from_json(facts.read_bytes(), KeptBuild)
        resources = self._resources(kept, launches)
        if launches and (reasons := kernel_resources.all_unlaunchable(resources)):
            raise BuildError(f"{self.target.entry} cannot be launched: {'; '.join(reasons)}")
        return DeviceBuild(path=str(artifact), sha256=kept.sha256, symbol=kept.symbol,
                           identity=key if content else kept.sha256, launches=launches,
                           resources=resources)

    def _make(self, tree: Path, folder: Path, facts: str, artifact: str) -> None:
        """Compile in a folder that then replaces `folder`."""
        part = folder.with_name(f".{folder.name}.{os.getpid()}.{threading.get_ident()}")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            compile_source = self._library if self.target.launch is None else self._code
            symbol, log = compile_source(tree, part, part / artifact)
            digest = hashlib.sha256((part / artifact).read_bytes()).hexdigest()
            (part / facts).write_bytes(to_json(KeptBuild(sha256=digest, symbol=symbol, log=log)))
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(part, folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)

    def _library(self, tree: Path, part: Path, out: Path) -> tuple[str, str]:
        """Build a shared library; return the entry's name in it, and the compiler's report."""
        header = part / "kopt_errors.h"
        header.write_text(toolkits.errors_of(self.target.language))
        argv = toolkits.argv(self.target.language, toolkits.compiler(self.target.language),
                             self.arch, self.target.flags, header, out, self.target.source)
        return self.target.entry, self._run(argv, tree, part)

    def _clang(self, clang: str, tree: Path, part: Path, out: Path) -> tuple[str, str]:
        """Compile HIP without ROCm; return the entry's name in the code, and the report."""
        log = self._run(toolkits.clang_argv(clang, self.arch, self.target.flags, part, out,
                                            self.target.source), tree, part)
        return self._symbol(log), log

    def _nvcc(self, nvcc: str, tree: Path, part: Path, out: Path) -> tuple[str, str]:
        """Compile CUDA C++ with its host code; return the entry's name in it, and the report."""
        log = self._run(toolkits.cubin_argv(nvcc, self.arch, self.target.flags, out,
                                            self.target.source), tree, part)
        return self._symbol(log), log

    def _symbol(self, log: str) -> str:
        """Return the entry's name in the code. Raises BuildError if there is not one instance."""
        base = self.target.entry.partition("<")[0]
        symbols = [name for name, _ in _kernels(log)
                   if name == base or f"{len(base)}{base}" in name]
        if len(symbols) > 1:
            entry = f"{toolkits.demangled(self.target.entry)}("
            symbols = [name for name in symbols if toolkits.demangled(name).startswith(entry)]
        if len(symbols) != 1:
            raise BuildError(f"{self.target.source} has no kernel {self.target.entry!r}")
        return symbols[0]

    def _run(self, argv: list[str], tree: Path, part: Path) -> str:
        return run_compiler(argv, tree, part, env=self.place.env, limits=LIMITS,
                            yields=self.place.yields, cancel=self.place.cancel)

    def _code(self, tree: Path, part: Path, out: Path) -> tuple[str, str]:
        """Compile a `__global__` function; return its name in the code, and the report."""
        language, place = self.target.language, self.place
        nvcc = toolkits.find("cuda") if language == "cuda" else ""
        if nvcc and "<<<" in (tree / self.target.source).read_text(errors="replace"):
            return self._nvcc(nvcc, tree, part, out)
        try:
            with Peer("compile.rtc", cwd=tree, limits=LIMITS, python=place.python,
                      env=guard.clean_env(place.env, home=part),
                      confine=Confine(writable=(str(part),), cards=False),
                      yields=place.yields, cancel=place.cancel, name="build") as compiler:
                answer = compiler.ask("compile", language=language, source=self.target.source,
                                      entry=self.target.entry, arch=self.arch, out=str(out),
                                      flags=self.target.flags)
        except PeerError as error:
            if nvcc:
                return self._nvcc(nvcc, tree, part, out)
            if language == "hip" and (clang := toolkits.find_clang()):
                return self._clang(clang, tree, part, out)
            raise EnvironmentFault(
                f"{language} kernels cannot be compiled: {error.what}",
                where=place.python or "this Python", fix="install torch with "
                f"{'CUDA' if language == 'cuda' else 'ROCm'} there, or set python: in the manifest",
            ) from None
        except PeerDied as error:
            raise BuildError(f"the compiler {error.what}") from None
        if refused := str(answer.get("refused", "")):
            if nvcc:
                return self._nvcc(nvcc, tree, part, out)
            raise BuildError(first_error(refused) + (HOST_CODE if JIT in refused else ""))
        return str(answer["symbol"]), str(answer["log"])

    def _compiler_id(self) -> list[object]:
        """Return what identifies the compiler: another version makes other code."""
        if self.target.launch is not None:
            clang = toolkits.find_clang() if self.target.language == "hip" else ""
            nvcc = toolkits.find("cuda") if self.target.language == "cuda" else ""
            return [self.place.python or "", clang, *(_identity(nvcc) if nvcc else [])]
        return _identity(toolkits.compiler(self.target.language))

    def _launches(self, source: str) -> dict[str, tuple[int, ...]]:
        """Return the launch sizes of each class. Raises BuildError if they cannot be evaluated."""
        launch = self.target.launch
        if launch is None:
            return {}
        constants = source_constants.find(source)
        launches = {}
        for config_class in self.target.classes:
            scalars = {tensor.name: tensor.value for tensor in self.target.tensors(config_class)
                       if isinstance(tensor.value, int)}
            try:
                launches[config_class.name] = launch.sizes(
                    constants | config_class.shape | scalars)
            except InputError as error:
                raise BuildError(f"{self.target.source}: the launch of class "
                                 f"{config_class.name}: {error.what}") from None
        return launches

    def _resources(self, kept: KeptBuild, launches: Mapping[str, tuple[int, ...]],
                   ) -> tuple[KernelResources, ...]:
        """Return what each kernel needs; with `launches`, what the entry needs in each class."""
        reported = parse_report(kept.log, self.arch)
        warp = arch.warp if (arch := datasheets.find_arch(self.arch)) is not None else 1
        return tuple(with_occupancy(replace(
            kernel, config_class=name, threads=-(-x * y * z // warp) * warp, grid=tuple(grid),
            programs=math.prod(grid), shared_bytes=kernel.shared_bytes + shared))
            for name, (*grid, x, y, z, shared) in launches.items()
            for kernel in reported if kernel.kernel == kept.symbol) if launches else reported


def _identity(compiler: str) -> list[object]:
    return [os.path.realpath(compiler), os.stat(compiler).st_mtime_ns]


def _digest(tree: Path) -> str:
    """Hash every file of a tree, since the source may include any; "" for a tree that is too large.
    """
    digest, total = hashlib.sha256(), 0
    for folder, folders, files in os.walk(tree):
        folders[:] = sorted(name for name in folders if name != ".git")
        for path in (Path(folder) / name for name in sorted(files)):
            if path.is_file():
                total += path.stat().st_size
                if total > MAX_BYTES:
                    return ""
                digest.update(f"{path.relative_to(tree)}\0".encode(errors="surrogateescape"))
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def for_people(resources: Sequence[KernelResources]) -> tuple[KernelResources, ...]:
    """Return resources for display: under plain names, and once for all classes with equal ones."""
    classes: dict[KernelResources, list[str]] = {}
    for each in resources:
        alike = replace(each, kernel=plain_name(each.kernel), config_class="",
                        grid=None, programs=None)
        classes.setdefault(alike, []).append(each.config_class)
    return tuple(replace(each, config_class=", ".join(filter(None, names)) or "every class")
                 for each, names in classes.items())


_ENTRY = re.compile(r"(?:Compiling entry function|Function Name:) '?(?P<name>[\w.$]+)")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads")
_USED = re.compile(r"Used (?P<registers>\d+) registers")
_SHARED = re.compile(r"(?P<bytes>\d+)(?:\+\d+)? bytes smem")
_MANGLED = re.compile(r"_ZL?(?P<length>\d+)(?P<rest>\w+)")
_AMD = re.compile(r"remark: (?:\S+: +|\s*)(?P<key>[A-Za-z][\w ]*?)(?: \[[\w/]+\])?: (?P<value>\d+)")
_AMD_FIELDS = {"VGPRs": "registers", "TotalSGPRs": "scalar_registers", "SGPRs": "scalar_registers",
               "ScratchSize": "spills", "LDS Size": "shared_bytes", "Occupancy": "waves"}


def parse_report(log: str, arch: str) -> tuple[KernelResources, ...]:
    """Return each kernel's resources in the report's order; shared memory is that of one block."""
    return tuple(replace(KernelResources(kernel=plain(name, 120), config_class="", arch=arch),
                         **fields) for name, fields in _kernels(log))


def plain_name(symbol: str) -> str:
    """Return the name of a C++ function in the source, for a symbol in no namespace."""
    mangled = _MANGLED.match(symbol)
    return mangled["rest"][:int(mangled["length"])] if mangled else symbol


def _kernels(log: str) -> Iterator[tuple[str, dict[str, Any]]]:
    name, fields = "", dict[str, Any]()
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            if name:
                yield name, fields
            name, fields = entry["name"], {}
        elif spills := _SPILLS.search(line):
            fields["spills"] = int(spills["stores"]) + int(spills["loads"])
        elif used := _USED.search(line):
            shared = _SHARED.search(line)
            fields |= {"registers": int(used["registers"]),
                       "shared_bytes": int(shared["bytes"]) if shared else 0}
        elif (amd := _AMD.search(line)) and amd["key"] in _AMD_FIELDS:
            fields[_AMD_FIELDS[amd["key"]]] = int(amd["value"])
    if name:
        yield name, fields
