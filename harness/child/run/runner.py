"""Runs one kernel, the candidate's or the incumbent's, in its own process.

Talks JSON lines over a socket: `ready` imports what the language needs, `load` opens the built
kernel, `call` calls it once and writes all its buffers to files, `prepare` allocates buffers for
timing, `warm` warms them up, `block` times calls. It knows no expected values, nothing of the other
side and not why it is asked. Standard library only; each language's loader is imported when needed.
"""

from __future__ import annotations

import json
import socket
from importlib import import_module
from typing import Any

from ..one_line import one_line
from ..watch.process_watch import ProcessWatch, bounded
from .kept_buffers import KeptBuffers


def open_kernel(job: dict[str, Any]) -> Any:
    if job["language"] == "c":
        from .load_c import CKernel

        return CKernel(job)
    from .load_python import PythonKernel

    return PythonKernel(job)


class Runner:
    """One kernel and its buffers; each public method answers the request of the same name."""

    def __init__(self) -> None:
        self.kernel: Any = None
        self.root = ""
        self.prepared: dict[str, Any] = {}

    def turn(self) -> None:
        """Switch to this kernel's modules, in a process that several kernels share."""
        if self.root:
            from .load_python import turn_to

            turn_to(self.root)

    def ready(self, job: dict[str, Any]) -> dict[str, Any]:
        from .load_python import preload

        return preload(job["language"], job["device"], job["interpret"])

    def context(self, job: dict[str, Any]) -> dict[str, Any]:
        from .load_python import make_context

        make_context(job["device"])
        return {}

    def load(self, job: dict[str, Any]) -> dict[str, Any]:
        native = job["language"] == "c"
        # imported before the watch takes its snapshot: the kernel must not change them
        import_module(".load_c" if native else ".load_python", __package__)
        self.clock: Any = import_module(".time_c" if native else ".time_python", __package__)
        self.watching = ProcessWatch(self, job)
        self.kernel = open_kernel(job)
        self.root = job["root"]
        self.watching.seal()
        return dict(self.kernel.facts)

    def call(self, job: dict[str, Any]) -> dict[str, Any]:
        buffers = self.kernel.buffers(job["tensors"])
        outputs = self.kernel.call(buffers)
        return {"outputs": self.kernel.write(buffers, outputs, job["tensors"])}

    def keep(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call once and keep the buffers for `again`, `swap` and `reread`."""
        self.kept = KeptBuffers(self.kernel, job["tensors"])
        return self.kept.call(outputs_only=False)

    def again(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.kept.call()

    def swap(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.kept.swap(job["moves"])

    def reread(self, job: dict[str, Any]) -> dict[str, Any]:
        return self.kept.reread(job["wait_s"], job["elsewhere"])

    def trial(self, job: dict[str, Any]) -> dict[str, Any]:
        """Report work that the kernel delegates to libraries or to the reference."""
        from ..watch.launches import trial

        return bounded([("delegation", text) for text in trial(
            self.kept, job["moves"], job["reference"], triton=job["triton"])])

    def trace(self, job: dict[str, Any]) -> dict[str, Any]:
        """Report what the kernel recognises over training steps, on the kept case."""
        from ..watch.training_steps import trace

        return {"steps": trace(self.kept, job["weights"], job["steps"])}

    def watch(self, _: dict[str, Any]) -> dict[str, Any]:
        """Report what changed in this process since before the kernel was loaded."""
        return self.watching.look()

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Allocate the buffers of one case and call the kernel on them, untimed.

        With `like`, the name of another side in this process, that side's buffers are used.
        """
        self.prepared[job["case"]] = self.clock.prepare(self.kernel, job)
        return {}

    def leave(self, _: dict[str, Any]) -> dict[str, Any]:
        """Free everything this side holds; other sides of this process need the memory."""
        self.prepared.clear()
        self.kernel = None
        return {}

    def drop(self, job: dict[str, Any]) -> dict[str, Any]:
        """Free the buffers of one case; other processes on the GPU need the memory."""
        self.prepared.pop(job["case"], None)
        self.clock.trim()
        return {}

    def recall(self, job: dict[str, Any]) -> dict[str, Any]:
        """Call once more on the prepared buffers and write the outputs."""
        case = self.prepared[job["case"]]
        case.poison()
        case.run(1)
        call, last = case.copies[0], self.kernel.last
        return {"outputs": self.kernel.write(call, last, job["tensors"], True)}

    def warm(self, job: dict[str, Any]) -> dict[str, Any]:
        """Warm up the prepared buffers, while the device is otherwise idle."""
        return dict(self.clock.warm(self.prepared[job["case"]], job["warm_ns"]))

    def capture(self, job: dict[str, Any]) -> dict[str, Any]:
        """Capture a CUDA graph of calls on the prepared buffers."""
        return dict(self.clock.capture(self.prepared[job["case"]], job["unit"]))

    def attach(self, _: dict[str, Any]) -> dict[str, Any]:
        """Attach the profiler to this process, on a GPU."""
        from .spans import attach

        attach()
        return {}

    def spans(self, job: dict[str, Any]) -> dict[str, Any]:
        """Profile calls on the prepared buffers, on a GPU."""
        from .spans import spans

        return spans(self.prepared[job["case"]], job["calls"])

    def exchange(self, job: dict[str, Any]) -> dict[str, Any]:
        """Move elements within the inputs of one copy, so that earlier results become wrong."""
        self.prepared[job["case"]].exchange(job["copy"], job["moves"])
        return {}

    def block(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"ns": self.clock.block(self.prepared[job["case"]], job["calls"], job["mode"])}

    def probe(self, job: dict[str, Any]) -> dict[str, Any]:
        """Time calls with a move before each, in the inputs (`fresh`) or elsewhere."""
        case = self.prepared[job["case"]]
        how = {"graph": job["graph"]} if self.kernel.on_gpu else {}
        return {"ns": self.clock.probe(case, job["chain"], job["fresh"], **how)}

    def after(self, job: dict[str, Any]) -> dict[str, Any]:
        """Write the outputs that the timed calls left in one of the copies."""
        call = self.prepared[job["case"]].copies[job["copy"]]
        return {"outputs": self.kernel.write(call, self.kernel.last, job["tensors"])}


def main(descriptor: int) -> None:
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    runners: dict[str, Runner] = {}  # several only on a GPU that allows a single process
    with channel, channel.makefile("rwb") as stream:
        for line in stream:
            job = json.loads(line)
            try:
                side = job.get("side", "")
                runner = runners.setdefault(side, Runner())
                if len(runners) > 1:
                    runner.turn()
                if like := job.get("like"):
                    job["copies_of"] = runners[like].prepared[job["case"]]
                answer = getattr(runner, job["op"])(job)
                if job["op"] == "leave":
                    del runners[side]
            except BaseException as error:
                answer = {"error": one_line(error), "kind": type(error).__name__}
            stream.write(json.dumps(answer).encode() + b"\n")
            stream.flush()

