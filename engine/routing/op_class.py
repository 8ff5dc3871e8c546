"""Which class of ops a kernel belongs to, by the words of its names and by what its source does.

The rules are data, in op_rules.toml. Names count as words: `linear_attn` is linear attention, and
`comma` contains no `mm`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

from engine.routing import source_language


class OpRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of ops: the words that name it, what its sources do, and where rewrites may gain."""

    name: str
    words: frozenset[str] = frozenset()
    phrases: tuple[str, ...] = ()
    weak: frozenset[str] = frozenset()
    does: tuple[str, ...] = ()
    amd: tuple[str, ...] = ()
    nvidia: tuple[str, ...] = ()

    def named_by(self, words: list[str]) -> str:
        """Return the word or phrase of a name that names this class, "" if none."""
        text = f" {' '.join(words)} "
        return next((word for word in words if word in self.words
                     or _DIMENSIONS.sub("", word) in self.words), "") or next(
            (phrase for phrase in self.phrases if f" {phrase} " in text), "")

    def done_by(self, counts: dict[str, int]) -> bool:
        """Return whether a source meets an alternative in `does`: features to have or to lack."""
        return any(all(counts[part[3:]] == 0 if part.startswith("no-") else
                       counts[part] >= alternative.split().count(part)
                       for part in alternative.split()) for alternative in self.does)


class _Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    default: dict[str, tuple[str, ...]]
    feature: dict[str, str]
    op: tuple[OpRule, ...]


_RULES = msgspec.toml.decode(Path(__file__).with_name("op_rules.toml").read_bytes(), type=_Rules)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_MIXED = re.compile(r"MoE|RoPE|SiLU|GeLU|ReLU|SwiGLU|GeGLU")
"""Words whose capitals begin no new word."""
_DIMENSIONS = re.compile(r"[1-3]d$")
UNKNOWN = "unknown op"


class OpClass(msgspec.Struct, frozen=True):
    """A class of ops and the evidence for it, "" if the class is UNKNOWN."""

    name: str
    evidence: str = ""

    def languages(self, device: Literal["amd", "nvidia"]) -> tuple[str, ...]:
        """Return the languages into which such kernels are rewritten, the most promising first."""
        rule = next((rule for rule in _RULES.op if rule.name == self.name), None)
        of_rule = () if rule is None else rule.amd if device == "amd" else rule.nvidia
        return of_rule or _RULES.default[device]


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case: `FusedMoE_conv2d_v3` is fused, moe, conv2d, v."""
    name = _MIXED.sub(lambda match: match[0].capitalize(), name)
    return re.findall(r"[a-z]+[1-3]d(?![a-z])|[a-z]+", _CAMEL.sub(" ", name).lower())


def classify(names: Iterable[str], source: str = "", path: str = "") -> OpClass:
    """Return the class of a kernel by its op and entry point, then by its source's kernels.

    If no name tells the class, the features of the source decide; ambiguous words decide last.
    """
    stated = [name for name in names if name]
    kernels = source_language.kernel_names(source, path)
    for group in (stated, kernels):
        if (op := _by_names(group)) is not None:
            return op
    counts = _features(source_language.code_of(source, path))
    for rule in _RULES.op:
        if rule.done_by(counts):
            return OpClass(rule.name, "by what the source does")
    for rule in _RULES.op:
        for name in (*stated, *kernels):
            if weak := next((word for word in words_of(name) if word in rule.weak), ""):
                return OpClass(rule.name, f"{weak!r} in {name}")
    return OpClass(UNKNOWN)


def _by_names(names: Iterable[str]) -> OpClass | None:
    split = [(name, words_of(name)) for name in names]
    for rule in _RULES.op:
        for name, words in split:
            if word := rule.named_by(words):
                return OpClass(rule.name, f"{word!r} in {name}")
    return None


def _features(code: str) -> dict[str, int]:
    return {name: sum(1 for _ in re.finditer(pattern, code))
            for name, pattern in _RULES.feature.items()}
