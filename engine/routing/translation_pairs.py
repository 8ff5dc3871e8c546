"""Translations from one kernel language to another: naming, parity gate, attempts.

The table is data, in translation_pairs.toml.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from engine.routing.source_language import SourceLanguage

Parity = Literal["reference", "kernel", "benchmark"]


class RewriteLanguage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A language that kernels are rewritten into; the host `python` needs a Python source."""

    title: str
    host: Literal["python", "any"]
    file: str


class TranslationPair(msgspec.Struct, frozen=True, array_like=True):
    """A translation with the name of its candidates, its gate, and its attempts without a gain."""

    source: SourceLanguage
    target: str
    candidate: str
    parity: Parity
    attempts: int

    def brief(self, entry: str, source_path: str, may_add: bool, is_module: bool = False) -> str:
        """Return the pair's rules for an agent's prompt, as Markdown.

        `entry` is "" where the project's own benchmark judges. `may_add`: whether a candidate may
        add files next to the source. `is_module`: the entry is a PyTorch module's class.
        """
        stem = PurePosixPath(source_path).stem
        file = LANGUAGES[self.target].file.format(stem=stem) if may_add else \
            PurePosixPath(source_path).name
        name = stem if is_module or not entry else entry
        if is_module:
            kept = "`ModelNew(Model)` becomes the entry, with the constructor and weights of " \
                "`Model`; its `forward`"
        else:
            kept = f"{f'`{entry}`' if entry else 'The function that is called now'} stays the " \
                "entry, with its signature; it"
        return "\n".join([
            f"## Translation to {LANGUAGES[self.target].title}", "",
            f"- Name the new kernel `{self.candidate.format(entry=name)}` and write it "
            f"into `{file}`.",
            f"- {kept} calls the new kernel.",
            f"- Parity gate: {PARITY[self.parity if entry else 'benchmark']}", ""])


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pairs: tuple[TranslationPair, ...]
    language: dict[str, RewriteLanguage]
    parity: dict[Parity, str]


_TABLE = msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table)
PAIRS, LANGUAGES, PARITY = _TABLE.pairs, _TABLE.language, _TABLE.parity
IS_SAME: dict[str, str] = {"cuda": "cuda-cpp"}
"""Source languages that have another name as a target."""


def pair(source: SourceLanguage, target: str) -> TranslationPair | None:
    """Return the translation from one language to another, None if there is none."""
    return next((rules for rules in PAIRS if (rules.source, rules.target) == (source, target)),
                None)
