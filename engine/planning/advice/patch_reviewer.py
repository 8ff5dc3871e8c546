"""Asks a model to review candidates that wait for a person; its review is advice."""

from __future__ import annotations

import msgspec

from engine.context import EngineContext
from engine.history import waiting_line
from engine.journal.decoded import patch_review
from engine.journal.decoded.patch_review import PatchReview
from engine.journal.decoded.recorded import verdict_of
from engine.journal.records import Candidate
from engine.judge import candidate as candidates
from engine.manifest.pool_schema import RequestSpec
from engine.markdown import fenced
from engine.planning.advice import model_request
from engine.routing import source_language
from engine.workers.model import model_process
from engine.workers.model.model_process import RequestAnswer
from harness.errors import InputError
from harness.formats import quantities
from harness.formats.text import plain, read_text

SUBAGENT = "reviewer"
MOST_LINES, MOST_CHARACTERS, CONCERNS_CHARACTERS = 48, 6_000, 300
MAX_PATCH, MAX_SOURCE = 60_000, 40_000
_TASK = """\
# Your task

Review candidate {candidate}, which waits for a person. kopt asks because: {reason}

Its worker claims: {claim}

## What kopt measured

{measured}

## The patch

{patch}

## The source before it: `{path}`

{source}
"""


def review_waiting(context: EngineContext) -> None:
    """Review each candidate that waits for a person and has no review. Raises CampaignStopped."""
    setup, reader = context.setup, context.reader
    spec = model_process.model_of(setup.manifest.pool, "reviewer")
    if spec is None:
        return
    for candidate in waiting_line.read(reader, setup.id):
        if candidate.state == "waiting" and patch_review.of_candidate(
                reader, setup.id, candidate.id) is None:
            review = _review(context, spec, candidate)
            context.writer.event(setup.id, patch_review.KIND, candidate.id,
                                 **msgspec.to_builtins(review))


def _review(context: EngineContext, spec: RequestSpec, candidate: Candidate) -> PatchReview:
    setup = context.setup
    tree, path = setup.tree(candidate.base_commit), setup.target.source
    source = read_text(tree / path) if path else ""
    try:
        patch = candidates.load(setup, candidate).patch.text
    except InputError as error:
        return PatchReview(candidate=candidate.id, model=spec.model, note=str(error))
    answer = model_request.ask(
        context, spec, SUBAGENT, source_language.detect(
            source, path, setup.manifest.target_backend),
        _TASK.format(candidate=candidate.id[:12], reason=plain(candidate.reason, 600),
                     claim=plain(candidate.hypothesis, 600) or "nothing",
                     measured=_measured(context, candidate), path=path,
                     patch=fenced(patch, MAX_PATCH, "diff"), source=fenced(source, MAX_SOURCE)),
        round=candidate.round, purpose=f"reviews {candidate.id[:12]}")
    return read(answer, candidate.id, spec.model)


def _measured(context: EngineContext, candidate: Candidate) -> str:
    """Return each class's times and the findings of the newest verdict, as Markdown."""
    row = context.reader.newest_verdict(context.setup.id, candidate.id)
    if row is None:
        return "- nothing"
    verdict = verdict_of(row)
    lines = [f"{row.config_class}: {row.outcome}, from {quantities.latency(row.incumbent_us)} "
             f"to {quantities.latency(row.latency_us)}" for row in verdict.rows
             if row.latency_us is not None and row.incumbent_us is not None]
    return "\n".join(f"- {plain(line, 300)}" for line in (
        *lines, *(f"{finding.severity}: {finding.detail}" for finding in verdict.audit)))


def read(answer: RequestAnswer, candidate: str, model: str) -> PatchReview:
    """Return an answer as a review of at most MOST_LINES lines."""
    if answer.fault or not answer.text.strip():
        return PatchReview(candidate=candidate, model=model,
                           note=answer.fault or "its answer is empty")
    lines = plain(answer.text, MOST_CHARACTERS).strip().splitlines()
    stated = [line for line in lines if line.strip(" *`").lower().startswith("concerns:")]
    concerns = stated[-1].strip(" *`").partition(":")[2].strip(" *`") if stated else \
        "none stated: read the review"
    return PatchReview(candidate=candidate, model=model, lines=tuple(lines[:MOST_LINES]),
                       concerns=plain(concerns, CONCERNS_CHARACTERS))
