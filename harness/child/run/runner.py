"""Runs one kernel, the candidate's or the incumbent's, in its own process.

Talks JSON lines over a socket: `ready` imports what the language needs, `load` opens the built
kernel, `prepare` maps the slots of a case in memory that it shares with the oracle, `call` calls it
on one of them, `warm` warms up, `block` times calls. It knows neither expected values nor the other
side nor the purpose of a request. Standard library only; each language's loader is imported when
needed.
"""

from __future__ import annotations

import faulthandler
from importlib import import_module
from typing import Any

from ..channel import serve
from ..watch.process_watch import ProcessWatch, bounded
from .compiled_loop import CompiledLoop

LOADERS = {"c": ("c_kernel", "CKernel"), "cuda": ("load_device_code", "DeviceKernel"),
           "hip": ("load_device_code", "DeviceKernel")}
"""The module and the class that load a language's kernels; PYTHON for all others."""
PYTHON = ("load_python", "PythonKernel")
STDERR = 2


class Runner:
    """One kernel and the slots of its cases.

    Each public method carries out the request of the same name and returns the answer to it, or
    None if the answer has been sent. `channel` is the descriptor of the socket to the owner.
    """

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self.kernel: Any = None
        self.root = ""
        self.prepared: dict[str, Any] = {}
        self.mapped: list[Any] = []
        """Memory of earlier slots that stays mapped, since a kernel may still refer to it."""
        self.received: list[int] = []
        """The file descriptors that came with the present request."""

    def turn(self) -> None:
        """Switch to this kernel's modules, in a process that several kernels share."""
        if self.root:
            from .import_tree import turn_to

            turn_to(self.root)

    def ready(self, job: dict[str, Any]) -> dict[str, Any]:
        from .load_python import preload

        return preload(job["language"], job["device"], job["interpret"])

    def context(self, job: dict[str, Any]) -> dict[str, Any]:
        from .load_python import make_context

        make_context(job["device"])
        return {}

    def load(self, job: dict[str, Any]) -> dict[str, Any]:
        # imported before the watch takes its snapshot: the kernel must not change them
        module, name = LOADERS.get(job["language"], PYTHON)
        open_kernel = getattr(import_module(f".{module}", __package__), name)
        clock = ".c_kernel" if job["language"] == "c" else ".time_python"
        self.clock: Any = import_module(clock, __package__)
        loop = CompiledLoop(job["loop"], self._channel, self.received, gpu=job["device"] != "cpu",
                            await_gpu=_driver_wait(job), any_mode=job["any_mode"]) \
            if job["loop"] else None
        self.watching = ProcessWatch(self, job)
        self.kernel = open_kernel(job, loop)
        self.root = job["root"]
        self.watching.seal()
        return dict(self.kernel.facts)

    def call(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call once on a prepared slot, and put what was returned into it."""
        return {"returned": self.prepared[job["case"]].call(job["slot"], job["touched"])}

    def trial(self, job: dict[str, Any]) -> dict[str, Any]:
        """Report work that the kernel delegates to libraries or to the reference."""
        from ..watch.launches import trial

        return bounded([("delegation", text) for text in trial(
            self._kept(job), job["moves"], job["reference"], triton=job["triton"])])

    def trace(self, job: dict[str, Any]) -> dict[str, Any]:
        """Report what the kernel recognises over training steps."""
        from ..watch.training_steps import trace

        return {"steps": trace(self._kept(job), job["weights"], job["steps"])}

    def _kept(self, job: dict[str, Any]) -> Any:
        """Return the call on a prepared slot, to be repeated in this process."""
        from .kept_call import KeptCall

        case = self.prepared[job["case"]]
        case.fetch(job["slot"], job["slot"] + 1)
        kept = KeptCall(self.kernel, case.tensors, case.copies[job["slot"]])
        kept.remember()
        return kept

    def watch(self, _: dict[str, Any]) -> dict[str, Any]:
        """Report what changed in this process since before the kernel was loaded."""
        return self.watching.look()

    def buffers(self, _: dict[str, Any]) -> dict[str, Any]:
        """Report what the buffers of PyTorch modules contain."""
        from ..watch.module_buffers import module_buffers

        return {"buffers": module_buffers()}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Map the slots of one case, and call the kernel on each if the job says so, untimed.

        Earlier slots of the case are unmapped, unless the job says to `keep` them. With `like`,
        the name of another side in this process, that side's slots are used.
        """
        if (old := self.prepared.pop(job["case"], None)) is not None:
            if job["keep"]:
                self.mapped.append(old.memory)
            old.close()
        case = self.prepared[job["case"]] = self.clock.prepare(self.kernel, job, self.received)
        return {"returned": self.kernel.described(case.copies[0])
                if job["call"] and getattr(self.kernel, "returns", False) else []}

    def leave(self, _: dict[str, Any]) -> dict[str, Any]:
        """Free everything this side holds; other sides of this process need the memory."""
        self.prepared.clear()
        self.kernel = None
        return {}

    def drop(self, job: dict[str, Any]) -> dict[str, Any]:
        """Unmap the slots of one case; other processes on the GPU need the memory."""
        if (case := self.prepared.pop(job["case"], None)) is not None:
            case.close()
        self.clock.trim()
        return {}

    def warm(self, job: dict[str, Any]) -> dict[str, Any]:
        """Warm up the prepared buffers, while the device is otherwise idle."""
        return dict(self.clock.warm(self.prepared[job["case"]], job["warm_ns"]))

    def capture(self, job: dict[str, Any]) -> dict[str, Any]:
        """Capture a CUDA graph of calls on the prepared buffers."""
        return dict(self.clock.capture(self.prepared[job["case"]], job))

    def attach(self, _: dict[str, Any]) -> dict[str, Any]:
        """Attach the profiler to this process, on a GPU."""
        from .spans import attach

        attach()
        return {}

    def spans(self, job: dict[str, Any]) -> dict[str, Any]:
        """Profile calls on the prepared buffers, on a GPU."""
        from .spans import spans

        return spans(self.prepared[job["case"]], job["calls"])

    def store(self, job: dict[str, Any]) -> dict[str, Any]:
        """Copy what calls returned into their slots."""
        self.prepared[job["case"]].store(job["slots"])
        return {}

    def block(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """Time a block of calls, each on a slot of its own.

        After an untimed call the compiled loop answers that it is ready. Then the owner fills the
        slots, and starts the calls with a word of eight bytes; the loop answers with their time.
        With `store` a third answer follows when returned values are in their slots.
        """
        case = self.prepared[job["case"]]
        self.clock.block(case, job)
        if not job["store"]:
            return None
        case.store(job["order"])
        return {}


def _driver_wait(job: dict[str, Any]) -> Any:
    if job["device"] == "cpu":
        return None
    from .load_device_code import driver_wait

    return driver_wait()


def main(descriptor: int) -> None:
    faulthandler.enable(STDERR, all_threads=False)  # a crash says where
    runners: dict[str, Runner] = {}  # several only on a GPU that allows a single process

    def work(job: dict[str, Any]) -> dict[str, Any] | None:
        side = job.get("side", "")
        runner = runners.setdefault(side, Runner(descriptor))
        runner.received = job["received"]
        if len(runners) > 1:
            runner.turn()
        if like := job.get("like"):
            job["copies_of"] = runners[like].prepared[job["case"]]
        answer: dict[str, Any] | None = getattr(runner, job["op"])(job)
        if job["op"] == "leave":
            del runners[side]
        return answer

    serve(descriptor, work)
