"""Which problems of KernelBench bench/kernelbench.py measures."""

from __future__ import annotations

from pathlib import Path

LEVELS = {
    "level1": (*range(1, 19), *range(19, 50), 51, 52, 53, *range(88, 101)),
    "level2": (9, 12, 14, 18, 22, 29, 37, 39, 40, 45, 53, 59, 62, 63, 68, 70, 76, 81, 86, 99)}
"""Level 1: all but its convolutions, less those named in LEFT_OUT; level 2: matrix products."""
CONVOLUTIONS = {
    "level1": (50, 54, 55, 56, 59, 60, 62, 63, 66, 67, 76, 80, *range(82, 88)),
    "level2": (1, 4, 17, 21, 25, 31, 32, 35, 46, 52, 54, 57, 65, 67, 69, 71, 73, 82, 85, 87, 92)}
"""Convolutions that are not transposed; of level 2 only two-dimensional ones."""
LEFT_OUT = {"level1": (10, 11, 13, 19, 32)}
"""Near copies of others (products, elementwise functions): 60 problems of level 1 remain."""


def chosen(folder: Path, only: list[str],
           levels: dict[str, tuple[int, ...] | None]) -> list[Path]:
    """Return the files of the problems, in the order of their numbers.

    Of a level without numbers, the folder itself, they are all files.
    """
    found = []
    for level, numbers in levels.items():
        for file in (folder if numbers is None else folder / level).glob("*.py"):
            number = 0 if numbers is None else int(file.name.partition("_")[0])
            is_wanted = numbers is None or (
                number in numbers and number not in LEFT_OUT.get(level, ()))
            if is_wanted and (not only or any(text in f"{level}/{file.name}" for text in only)):
                found.append((level, number, file))
    return [file for _, _, file in sorted(found)]


def name_of(file: Path) -> str:
    return f"{file.parent.name}/{file.stem}"
