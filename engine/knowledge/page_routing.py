"""Chooses the pages for a slot by its op, architecture and language, within a limit of length."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from engine.knowledge import page_library
from engine.knowledge.page_files import Page
from engine.knowledge.page_library import KINDS, LEARNED
from engine.routing import op_class, source_language
from harness.benchmark.spec.command_target import CommandTarget
from harness.tasks.target import Target

MAX_EXCERPT = 12_000
"""Most characters of an excerpt: some 3,500 tokens of a worker's prompt."""
MAX_LEARNED = 4_000
"""Most characters of an excerpt that are used for pages of the kind `learned`."""
_ORDER = {kind: at for at, kind in enumerate(KINDS)}


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a slot works on; "" is unknown, and matches only pages for all subjects."""

    op: str = ""
    """A class of ops."""
    gpu: str = ""
    """An architecture: `sm_90`, `gfx942:sramecc+:xnack-`."""
    language: str = ""
    names: tuple[str, ...] = ()
    """The target's own names and those in its source."""

    def fits(self, page: Page) -> bool:
        """Return whether a page is for this op, architecture and language."""
        gpu = self.gpu.partition(":")[0]
        facts = ((page.head.ops, self.op), (page.head.languages, self.language),
                 (page.head.gpus, gpu.removesuffix("a") if gpu.startswith("sm_") else gpu))
        return all(not allowed or value in allowed for allowed, value in facts)

    def has_form_of(self, page: Page) -> bool:
        """Return whether one of the names has a word or phrase of the page's form."""
        texts = [f" {' '.join(op_class.words_of(name))} " for name in self.names]
        return any(f" {word} " in text for word in page.head.words for text in texts)


def subject_of(target: Target | CommandTarget, source: str, gpu: str, *, op: str = "",
               language: str = "") -> Subject:
    """Return the subject of a target whose kernel's source is `source`.

    `op` is a further name of the op; `language` is the one that the kernel is rewritten in, "" if
    it keeps its own.
    """
    names = [op, target.op, "" if isinstance(target, CommandTarget) else target.entry]
    detected = source_language.detect(source, target.source)
    code = source_language.code_of(source, target.source)
    return Subject(
        op=op_class.classify(names, source, target.source).name, gpu=gpu,
        language=source_language.KERNEL_TYPES.get(language, language) or detected,
        names=tuple(dict.fromkeys([*names, *re.findall(r"[A-Za-z_]\w*", code)])))


def relevant(subject: Subject, project: Path | None = None) -> list[Page]:
    """Return the pages that fit: learned ones, then ops, hardware, languages, ways of working.

    Within a kind pages about the subject's form of the op come first, then those that are for
    fewer subjects. Pages about another form come after all kinds.
    """
    def order(page: Page) -> tuple[bool, int, bool, int, int]:
        head, has_form = page.head, subject.has_form_of(page)
        return (bool(head.words) and not has_form, _ORDER[page.kind], not has_form,
                sum(not limits for limits in (head.ops, head.languages, head.gpus)), len(head.ops))

    fitting = [page for page in page_library.load(project).pages if subject.fits(page)]
    return sorted(fitting, key=order)


def excerpt(subject: Subject, project: Path | None = None) -> str:
    """Return whole pages that fit, within MAX_EXCERPT characters, and the names of the others.

    `project` is a folder whose own pages are included.
    """
    parts: list[str] = []
    others: list[str] = []
    left, learned = MAX_EXCERPT - 200, MAX_LEARNED  # 200 for the line that names the others
    for page in relevant(subject, project):
        text = page.text.strip()
        size = len(text) + 2
        if size <= (min(left, learned) if page.kind == LEARNED else left):
            parts.append(text)
            left -= size
            learned -= size if page.kind == LEARNED else 0
        else:
            others.append(page.name)
    if others and parts:
        parts.append(f"Other pages: {', '.join(others)}"[:198])
    return "\n\n".join(parts)
