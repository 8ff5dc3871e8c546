"""A kernel's source as a search sees it: its text, its knobs and what they must fulfil."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.search.space import knobs
from harness.search.space.constraints import Requirement
from harness.search.space.knobs import CheckedConfig, Knob
from harness.search.space.space import Space, of_knobs
from harness.trial_fields import Value


@dataclass(frozen=True, kw_only=True)
class TunableSource:
    """A source that was read once; it checks configurations and applies them to its text."""

    path: str
    """The source's path inside its project."""
    text: str
    language: str
    knobs: tuple[Knob, ...]
    requirements: tuple[Requirement, ...]

    @classmethod
    def parse(cls, text: str, *, language: str, path: str = "") -> TunableSource:
        """Find the knobs and requirements of a text.

        Raises InputError for declarations that cannot be understood, and for a text that does not
        meet its own requirements.
        """
        found = knobs.find(text, language=language, where=path)
        return cls(path=path, text=text, language=language, knobs=found,
                   requirements=knobs.requirements(text, found, path))

    @classmethod
    def read(cls, tree: Path, path: str, *, language: str) -> TunableSource:
        """Read and parse the source of a tree. Raises InputError."""
        return cls.parse(knobs.read(tree / path), language=language, path=path)

    def space(self, only: Sequence[str] = ()) -> Space:
        """Return the space of some knobs (all if `only` is empty). Raises InputError for none."""
        return of_knobs(self.knobs, only, self.requirements)

    def check(self, config: Mapping[str, object]) -> CheckedConfig:
        """Compare a configuration with the knobs and requirements; never raises."""
        return knobs.check(self.knobs, config, self.requirements)

    def apply(self, config: Mapping[str, Value]) -> str:
        """Return the text with the named knobs set. Raises InputError for what they do not allow.
        """
        return knobs.apply(self.text, config, language=self.language)

    def configured(self, config: Mapping[str, object]) -> str | None:
        """Return the text with a configuration set, None if the configuration is refused."""
        checked = self.check(config)
        return None if checked.refusal else self.apply(checked.config)

    def kernel_id(self, op: str) -> str:
        """Return the short name of the kernel, the same for all values of its knobs."""
        return knobs.identity(op, self.text, language=self.language)

    def candidate_id(self, incumbent_tree: str, config: Mapping[str, Value]) -> str:
        """Return the short name of a candidate: the same text on the same tree is the same one."""
        text = self.configured(config)
        content = repr(sorted(config.items())) if text is None else text
        key = f"{incumbent_tree}\n{self.path}\0{content}"
        return hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:12]
