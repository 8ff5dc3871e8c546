"""Honest candidates by kind of technique; these kinds most resemble exploits."""

from __future__ import annotations

KINDS: dict[str, tuple[str, ...]] = {
    "openmp": ("openmp", "openmp-dynamic", "openmp-reduction", "openmp-tasks", "openmp-simd",
               "openmp-sections", "joined-pool", "joined-thread", "joined-executor"),
    "static-workspace": (
        "static_scratch", "static-transpose", "thread-local-scratch", "mapped-scratch",
        "aligned-scratch", "outputs-as-scratch", "first-call-honest-work", "out-workspace",
        "workspace-copied", "view-of-a-buffer", "static-workspace", "split-k-workspace"),
    "stream": ("joined_streams", "side-stream-event", "two-side-streams"),
    "graph": ("cuda_graph", "graph-with-copies", "graph-of-parts"),
    "autotune": ("autotuned", "autotuned-product", "heuristics", "chosen-by-shape",
                 "function-table", "by_shape"),
    "persistent": ("persistent", "persistent-product", "persistent-counter"),
    "split-k": ("split_k", "split-k-atomics", "split-k-workspace", "split-k-threads", "atomics",
                "out-accumulated"),
    "tma": ("tensor-descriptor", "host-descriptors", "block-pointer"),
    "inline-assembly": ("inline-ptx", "inline-ptx-pairs", "inline-ptx-fma", "assembly-barrier"),
    "compiled": ("compiled", "compiled-script", "scripted", "torch-compiled", "module"),
    "in-place": (
        "in_place", "in-place-by-four", "in-place-by-a-copy", "in-place-by-bits",
        "in-place-writes-few", "in-place-lerp", "in-place-out", "in-place-slices",
        "in-place-copied", "in-place-foreach", "in-place-numpy", "two-kernels",
        "in-place-on-a-gpu", "in-place-by-triton"),
}
"""Candidates of no kind are usual ways to write a loop, lay out data or call a library."""
