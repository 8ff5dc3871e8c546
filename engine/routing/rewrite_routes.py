"""Which subagents rewrite a kernel into another language, in which order, and why not others."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from engine.routing.op_class import UNKNOWN, OpClass
from engine.routing.source_language import SourceLanguage
from engine.routing.translation_pairs import IS_SAME, LANGUAGES, pair
from engine.subagents.subagent import Subagent
from harness.devices.device import DeviceKind

NO_ROUTE = "no agent rewrites it in another language"
PROBE_S = 30.0
ATTEMPTS = 3
"""Rounds without a gain after which a subagent is left out, unless a translation pair says more
or less."""
_FIND = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A subagent that rewrites the kernel into `language`, and why it was chosen."""

    subagent: str
    language: str
    reason: str


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """The routes of a kernel, the most promising first, and why other languages are left out."""

    op: OpClass
    source: SourceLanguage
    routes: tuple[Route, ...] = ()
    left_out: tuple[str, ...] = ()

    def __str__(self) -> str:
        titles = dict.fromkeys(LANGUAGES[route.language].title for route in self.routes)
        evidence = f" ({self.op.evidence})" if self.op.evidence else ""
        kind = f"{self.op.name}{evidence}"
        if titles:
            return "; ".join([f"routed to {', '.join(titles)}: {kind}", *self.left_out])
        is_known = self.op.name != UNKNOWN
        return f"{NO_ROUTE}: " + "; ".join([
            *self.left_out, f"the op is {kind}" if is_known else "the op's class is unknown"])


def route(op: OpClass, source: SourceLanguage, device: DeviceKind,
          subagents: Mapping[str, Subagent], *, hosts: Collection[str] = ("python", "any"),
          installed: Callable[[str], bool], languages: Sequence[str] | None = None,
          spent: Mapping[str, int] | None = None) -> Routing:
    """Return the routes of a kernel of a class of ops, written in `source`, on a kind of device.

    `hosts`: allowed values of `RewriteLanguage.host`; `python` where a candidate may be Python.
    `languages` replaces the class's own order.
    `spent` counts the rounds that each subagent has worked in without a gain. Subagents that start
    from any source come before those that translate from this one.
    """
    if device == "cpu":
        return Routing(op=op, source=source, left_out=("the kernel runs on the CPU",))
    general: list[Route] = []
    special: list[Route] = []
    missing: list[str] = []
    others: list[str] = []
    for language in op.languages(device) if languages is None else languages:
        title, known = LANGUAGES[language].title, pair(source, language)
        limit = ATTEMPTS if known is None else known.attempts
        for_language = [each for each in subagents.values() if each.target_language == language
                        and each.source_language in ("", source)]
        able = [each for each in for_language if all(map(installed, each.requires))]
        fresh = [each for each in able if (spent or {}).get(each.name, 0) < limit]
        if IS_SAME.get(source, source) == language:
            others.append(f"the source is already {title}")
        elif LANGUAGES[language].host not in hosts:
            others.append(f"{title} needs a Python source")
        elif not for_language:
            others.append(f"no subagent writes {title}")
        elif not able:
            missing.append(title)
        elif not fresh:
            others.append(f"{title} was tried {limit} times without a gain")
        else:
            for each in sorted(fresh, key=lambda subagent: subagent.name):
                (special if each.source_language else general).append(Route(
                    subagent=each.name, language=language, reason=f"{op.name} in {title}"))
    absent = [f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed"] \
        if missing else []
    return Routing(op=op, source=source, routes=(*general, *special),
                   left_out=(*absent, *others))


def is_installed(requirement: str, python: str | None = None) -> bool:
    """Return whether a program or a package of the target's Python exists; `a|b`: either."""
    return any(shutil.which(name) is not None or _has_package(name.partition(".")[0], python)
               for name in requirement.split("|"))


@functools.cache
def _has_package(name: str, python: str | None) -> bool:
    if python is None or python == sys.executable:
        return importlib.util.find_spec(name) is not None
    try:
        return subprocess.run([python, "-c", _FIND, name], timeout=PROBE_S, check=False,
                              stdin=subprocess.DEVNULL, capture_output=True).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
