"""Chooses rewrites and subagents for a campaign's kernel, from its source, device and history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from engine.campaign.judged_target import JudgedTarget
from engine.globs import matches
from engine.journal.read import Reader
from engine.knowledge import page_routing
from engine.manifest.schema import Manifest
from engine.routing import op_class, rewrite_routes, source_language
from engine.routing.rewrite_routes import Routing
from engine.routing.source_language import SourceLanguage
from engine.routing.translation_pairs import LANGUAGES, pair
from engine.subagents import rendering, subagent_registry
from engine.workers import slot_facts
from harness.benchmark.spec.command_target import CommandTarget
from harness.devices.device import DeviceKind
from harness.tasks.target import OF_CARD, Target

FRUITLESS_STAGES = ("no change", "tie", "regression", "reject", "repeat", "failed")
"""Last stages of a slot without a gain."""


def of_target(judged: JudgedTarget, tree: Path, spent: Mapping[str, int] | None = None) -> Routing:
    """Return the routing of a target's kernel as it is in `tree`; see `of_source`."""
    source = judged.target.source
    text = (tree / source).read_text(errors="replace") if source else ""
    return of_source(judged.manifest, judged.target, text, judged.device.kind, judged.edit, spent)


def of_source(manifest: Manifest, target: Target | CommandTarget, text: str, device: DeviceKind,
              edit: Sequence[str], spent: Mapping[str, int] | None = None) -> Routing:
    """Return the routing of a kernel whose source is `text`, for a kind of device.

    `spent` counts the rounds that each subagent has worked in without a gain.
    """
    names = [manifest.target_op, target.op]
    if not isinstance(target, CommandTarget):
        names.append(target.entry)
    return rewrite_routes.route(
        op_class.classify(names, text, target.source),
        source_language.detect(text, target.source, manifest.target_backend),
        device, subagent_registry.load(Path(manifest.project)).for_source(target.source, text),
        hosts=("python", "any") if _may_be_python(target, edit) else ("any",), spent=spent,
        languages=manifest.pool.rewrites,
        installed=lambda name: rewrite_routes.is_installed(name, manifest.python))


def _may_be_python(target: Target | CommandTarget, edit: Sequence[str]) -> bool:
    """Return whether a candidate may be in Python.

    It may not if the harness compiles the kernel, or if `edit` holds no file that can be Python.
    """
    if not isinstance(target, CommandTarget):
        return target.language not in (*OF_CARD, "c")
    return any(PurePosixPath(glob).suffix in (".py", "", ".*") for glob in edit)


def system_prompt(judged: JudgedTarget, language: SourceLanguage, subagent: str) -> str:
    """Return a subagent's system prompt for a target. Raises InputError if rendering fails."""
    manifest = judged.manifest
    return rendering.system_prompt(
        subagent_registry.load(Path(manifest.project)).get(subagent),
        slot_facts.of_target(judged.target, edit=judged.edit, device=judged.device.label,
                             python=manifest.python, language=language))


def translation_brief(judged: JudgedTarget, routing: Routing, language: str) -> str:
    """Return the rules of a translation for an agent's prompt, "" if the pair has none."""
    rules = pair(routing.source, language)
    if rules is None:
        return ""
    source = PurePosixPath(judged.target.source)
    file = LANGUAGES[language].file.format(stem=source.stem)
    may_add = matches(str(source.with_name(file)), judged.edit)
    if isinstance(judged.target, CommandTarget):
        return rules.brief("", str(source), may_add)
    is_module = judged.target.entry == "Model" and judged.target.adapter is not None
    return rules.brief(judged.target.entry, str(source), may_add, is_module)


def knowledge(judged: JudgedTarget, routing: Routing, text: str) -> str:
    """Return an excerpt of the pages about the kernel whose source is `text`, for a prompt."""
    return page_routing.excerpt(page_routing.subject_of(
        judged.target, text, judged.device.arch, op=judged.manifest.target_op,
        language=routing.source), Path(judged.manifest.project))


def spent(reader: Reader, campaign: str) -> Counter[str]:
    """Return in how many rounds each subagent has worked without a gain."""
    rounds = {(slot.subagent, round.n) for round in reader.rounds(campaign)
              for slot in reader.slots(campaign, round.n)
              if slot.subagent and slot.stage in FRUITLESS_STAGES}
    return Counter(name for name, _ in rounds)
