"""Kernels that are split: classes that want other knobs, where they are, and the source."""
