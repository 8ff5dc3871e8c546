"""Whether a runner that has loaded nothing yet can run kernels; if not, no kernel is to blame."""

from __future__ import annotations

from concurrent.futures import Future

from harness.compile.kernel import Kernel, Place
from harness.errors import DeviceFault, EnvironmentFault
from harness.isolation.rpc import Peer, PeerDied, PeerError

OF_THE_MACHINE = ("not compiled with", "driver on your system", "no NVIDIA driver")
"""What torch says of itself or of the driver, and of no single card."""


class GpuUnreachable(Exception):
    """A runner that has loaded nothing yet cannot reach the GPU."""


def unreachable_fault(why: str, place: Place) -> EnvironmentFault:
    """Return the fault that torch reaches no GPU: this card's, unless no other would be reached."""
    told = f"torch reaches no GPU: {why}"
    if any(words in why for words in OF_THE_MACHINE):
        return EnvironmentFault(told, where=place.python or "this Python")
    return DeviceFault(told, where=place.device, fix="look at the card, or use another")


def await_ready(peer: Peer, kernel: Kernel) -> None:
    """Wait until a runner that was woken has imported what its kernels need. Raises NoGpu, or
    EnvironmentFault where the target's Python cannot run them.
    """
    if kernel.target.language == "c":
        return
    try:
        if no_gpu := peer.receive().get("no_gpu"):
            raise GpuUnreachable(no_gpu)
    except (PeerError, PeerDied) as error:
        raise EnvironmentFault(
            f"the target's Python cannot run {kernel.target.language} kernels: {error.what}",
            where=kernel.place.python or "this Python",
            fix="install torch and triton there, or set python: in the manifest") from None


def has_failed(settled: Future[None]) -> bool:
    """Wait for a runner to settle, and tell whether it failed: not by the kernel, which it has not
    loaded, and maybe for what was beside it.
    """
    try:
        settled.result()
    except (PeerError, PeerDied):
        return True
    return False


def load(kernel: Kernel, peer: Peer) -> None:
    """Have a kernel loaded by a runner that was woken. Raises PeerError, PeerDied."""
    try:
        await_ready(peer, kernel)
    except GpuUnreachable as lost:
        raise PeerError(f"no GPU: {lost}") from None
    peer.ask("load", **kernel.job())
