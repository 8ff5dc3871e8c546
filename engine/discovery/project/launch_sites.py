"""Reads `kernel<<<grid, block, shared>>>(...)` in a CUDA or HIP source as a task's launch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.compile.device_code import source_constants
from harness.formats import expression
from harness.tasks.kernel_launch import Launch

MOST_STEPS = 8
_SITE = re.compile(r"\b(?P<kernel>\w+)\s*(?P<instance><[^<>;]*>)?\s*<<<(?P<sizes>.*?)>>>\s*"
                   r"\((?P<values>[^;]*)\)\s*;", re.DOTALL)
_VARIABLE = re.compile(r"\b(?P<name>[A-Za-z_]\w*)\s*(?:=\s*(?:dim3\s*)?(?P<value>[^;=]+)"
                       r"|\((?P<sizes>[^;{}]*)\)|\{(?P<braced>[^;{}]*)\})\s*;")
_CEILING = re.compile(r"\b(?:\w*::)?(?:ceil_?div|cdiv|div_?up|div_?ceil|ceil_?divide)\s*"
                      r"\(([^(),]*),([^(),]*)\)", re.IGNORECASE)
_CAST = re.compile(r"\((?:unsigned(?: int)?|int|size_t|int64_t|uint32_t|long long|long)\)"
                   r"|\bstatic_cast<[^<>]*>")
_SIZES = {"float": 4, "int": 4, "double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2,
          "char": 1, "int64_t": 8, "float4": 16}
_SIZEOF = re.compile(rf"\bsizeof\s*\(\s*({'|'.join(_SIZES)})\s*\)")
_NAME = re.compile(r"\b[A-Za-z_]\w*\b")


@dataclass(frozen=True, kw_only=True)
class LaunchSite:
    """One launch: the kernel, its template arguments, and the texts between the brackets."""

    kernel: str
    instance: str
    text: str
    sizes: tuple[str, ...]
    values: tuple[str, ...]
    variables: Mapping[str, str]

    def launch(self, parameters: Sequence[str], source: str) -> Launch | None:
        """Return it in the kernel's parameters and the source's constants; None if it cannot be.

        Other names are those of the function around it, for a config class to have.
        """
        passed = {value: name for value, name in zip(self.values, parameters, strict=False)
                  if _NAME.fullmatch(value)}
        known = {name: name for name in source_constants.find(source)} | passed
        try:
            grid, block, *rest = [self._axes(size, known) for size in self.sizes]
        except (ValueError, SyntaxError):
            return None
        launch = Launch(grid=grid, block=block, shared_bytes=rest[0][0] if rest else 0)
        return None if launch.fault() else launch

    def _axes(self, text: str, known: Mapping[str, str]) -> tuple[int | str, ...]:
        """Return the dimensions of a `dim3` or of a number."""
        text = text.strip()
        for _ in range(MOST_STEPS):
            if text in known or text not in self.variables:
                break
            text = self.variables[text].strip()
        text = re.sub(r"^dim3\s*(?=[({])", "", text)
        if re.fullmatch(r"\(.*\)|\{.*\}", text, re.DOTALL) and _is_whole(text):
            text = text[1:-1]
        return tuple(self._expression(part, known) for part in _parts(text))

    def _expression(self, text: str, known: Mapping[str, str]) -> int | str:
        for _ in range(MOST_STEPS):
            text = _SIZEOF.sub(lambda match: str(_SIZES[match[1]]), _CAST.sub("", text))
            text = _CEILING.sub(lambda match: "(({0} + {1} - 1) / ({1}))".format(
                *map(str.strip, match.groups())), text)
            if all(name in known or name not in self.variables for name in _NAME.findall(text)):
                break
            text = _NAME.sub(lambda match: match[0] if match[0] in known
                             or match[0] not in self.variables
                             else f"({self.variables[match[0]]})", text)
        text = _NAME.sub(lambda match: known.get(match[0], match[0]),
                         source_constants.python_expression(text))
        text = " ".join(text.split())
        expression.parse(text)
        return int(text) if text.isdigit() else text


def find(text: str) -> list[LaunchSite]:
    """Return the launches in a text without comments, in its order."""
    variables = {match["name"]: match["value"] or match["sizes"] or match["braced"] or ""
                 for match in _VARIABLE.finditer(text)}
    return [LaunchSite(
        kernel=match["kernel"], instance=re.sub(r"\s+", "", match["instance"] or ""),
        text=match[0], sizes=tuple(_parts(match["sizes"]))[:3],
        values=tuple(_parts(match["values"])), variables=variables)
        for match in _SITE.finditer(text)]


def _is_whole(text: str) -> bool:
    """Return whether the first bracket is closed by the last one."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "({") - (letter in ")}")
        if depth == 0:
            return index == len(text) - 1
    return False


def _parts(text: str) -> list[str]:
    """Return the parts between commas that lie in no bracket."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]
