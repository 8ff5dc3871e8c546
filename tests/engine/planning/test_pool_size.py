"""Workers: at least eight agents, four per GPU, and fewer on a small host."""

from __future__ import annotations

import pytest

from engine.manifest.load import apply_environment
from engine.manifest.pool_schema import PoolSpec
from engine.planning.pool_size import authors, workers_of
from tests.support.searches.plan_case import AGENT

AGENTS = PoolSpec(backends=("cli",), cli=(AGENT,))
LARGE = {"cores": 128, "memory_bytes": 1 << 40}


@pytest.mark.parametrize(("cards", "workers"), [(0, 8), (1, 8), (2, 8), (4, 16), (8, 32)])
def test_agents_are_eight_or_four_a_gpu(cards: int, workers: int) -> None:
    assert workers_of(AGENTS, cards, **LARGE) == workers


@pytest.mark.parametrize(("cores", "gibibytes", "workers"), [
    (1, 64, 4), (2, 64, 8), (64, 3, 3), (1, 0, 1), (64, 64, 32)])
def test_small_host_runs_fewer_agents(cores: int, gibibytes: int, workers: int) -> None:
    assert workers_of(AGENTS, 8, cores, gibibytes << 30) == workers


def test_environment_sets_both_numbers_and_an_empty_variable_sets_nothing() -> None:
    pool = apply_environment(AGENTS, {"KOPT_MIN_PARALLEL_WORKERS": "2",
                                      "KOPT_WORKERS_PER_GPU": "3"})
    assert [workers_of(pool, cards, **LARGE) for cards in (0, 1, 4)] == [2, 3, 12]
    assert apply_environment(AGENTS, {"KOPT_MIN_PARALLEL_WORKERS": ""}) == AGENTS


def test_searches_share_the_device() -> None:
    assert [workers_of(PoolSpec(), cards, **LARGE) for cards in (0, 1, 2)] == [4, 4, 8]
    assert workers_of(PoolSpec(), 2, 3, 1 << 40) == 3


def test_agent_backend_is_an_author_of_its_own() -> None:
    pool = PoolSpec(backends=("agent", "cli", "search"), cli=(AGENT,))
    assert [author.backend for author in authors(pool)] == ["cli", "agent"]
    assert authors(PoolSpec(backends=("search",), cli=(AGENT,))) == ()
