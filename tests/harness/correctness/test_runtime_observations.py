"""A runner's observations are checked, sanitised and shortened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.correctness import runtime_audit
from harness.isolation.rpc import PeerError
from harness.tasks.target import Target
from harness.verdict import Finding
from tests.exploits import case, problems
from tests.support.judging.runtime_audit_case import Bench, mix

pytestmark = pytest.mark.slow


def test_library_loaded_with_the_candidate_is_found(tmp_path: Path) -> None:
    exploit = next(module.EXPLOIT for module in case.all_modules()
                   if getattr(module, "EXPLOIT", None) is not None
                   and module.EXPLOIT.number == 60)
    verdict = case.verdict_on(exploit, tmp_path)
    assert ("hidden-code", "runs code of kernel.so, which is neither the kernel's nor the system's"
            ) in {(finding.rule, finding.detail) for finding in verdict.audit}, verdict


def test_patched_runner_makes_the_verdict_invalid(tmp_path: Path) -> None:
    problem, source = mix("import time\ntime.perf_counter = lambda: 0.0")
    verdict = case.judge(tmp_path, problem, source, static_audit=False)
    assert not verdict.valid
    assert verdict.rejected_reason == "tampered: time.perf_counter was replaced"
    rejecting = [finding.rule for finding in verdict.audit if finding.severity == "reject"]
    assert rejecting.count("patched") == 1


class FixedRunner:
    """A runner that gives a fixed answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def ask(self, op: str) -> dict[str, Any]:
        return self.answer


OBSERVATION = {"rule": "patched", "detail": "len was replaced"}


@pytest.mark.parametrize("answer", [
    {}, {"seen": None}, {"seen": [OBSERVATION] * 21}, {"seen": [{**OBSERVATION, "rule": "praise"}]},
    {"seen": [{**OBSERVATION, "detail": 3}]}, {"seen": ["patched"]}, {"seen": OBSERVATION}])
def test_invalid_answer_is_an_error(answer: dict[str, Any]) -> None:
    with pytest.raises(PeerError, match="sent an invalid answer"):
        runtime_audit.watch(FixedRunner(answer))  # type: ignore[arg-type]


def test_observations_are_sanitised_and_shortened() -> None:
    runner = FixedRunner({"seen": [{**OBSERVATION, "detail": "a\x1b[31m\nb" + "c" * 5000}]})
    [finding] = runtime_audit.watch(runner)  # type: ignore[arg-type]
    assert finding.detail.startswith("a bc")
    assert len(finding.detail) <= runtime_audit.MOST_LETTERS


def test_known_findings_are_not_repeated() -> None:
    known = Finding(rule="patched", severity="reject", detail="len was replaced")
    new = replace(known, detail="id was replaced")
    assert runtime_audit.new_findings([known, new, new], [known]) == [new]
    assert runtime_audit.reject_reason([replace(known, severity="flag")]) == ""
    findings = [replace(known, severity="flag"), new]
    assert runtime_audit.reject_reason(findings) == "tampered: id was replaced"


def test_kernel_in_the_file_of_the_reference_is_not_a_delegation(bench: Bench) -> None:
    target: Target = replace(problems.MIX.target, reference="kernel.py:mix")
    assert bench.findings_on(replace(problems.MIX, target=target), problems.MIX.honest) == []
