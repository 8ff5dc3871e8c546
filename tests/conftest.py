"""Hooks, settings and fixtures of all tests."""

from __future__ import annotations

import compileall
import functools
import gc
import importlib
import os
import signal
import sys
from pathlib import Path

import pytest
from _pytest import runner

from harness.child.supervise import zygote

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # as harness.search.bayesian does, before numpy is imported

try:
    import hypothesis
except ImportError:  # a GPU machine that runs the tests of the harness alone
    hypothesis = None  # type: ignore[assignment]
else:
    # the same examples on every run; HYPOTHESIS_PROFILE=explore looks for new ones
    hypothesis.settings.register_profile("steady", derandomize=True, deadline=None)
    hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

ROOT = Path(__file__).parents[1]
try:
    importlib.import_module("pynvml")
except ImportError:  # as above
    sys.path.append(str(ROOT / "tests/support/devices/stand_ins"))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [
        os.environ.get("PYTHONPATH", ""), sys.path[-1]]))
cards = os.environ.get("KOPT_TEST_CARDS", "").split(",")
"""Cards for the workers of a test run, e.g. "0,1": the workers take them in turn."""
if any(cards):
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.environ["CUDA_VISIBLE_DEVICES"] = cards[worker % len(cards)]

if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # as under nohup: programs would inherit it
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Compile the packages once, also if PYTHONDONTWRITEBYTECODE is set.

    Tests start thousands of programs; confined ones cannot write bytecode, and without this
    each worker would compile the same files.
    """
    gc.disable()  # until all tests are collected: collecting them makes hardly any garbage
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if hasattr(config, "workerinput"):
        return
    for package in ("harness", "engine", "kopt_tui", "tests/support"):
        compileall.compile_dir(ROOT / package, quiet=2)
    if config.getoption("numprocesses", None):
        from tests.support.programs import compiled_tests, zygote_broker

        compiled_tests.write(config, ROOT / "tests")
        zygote_broker.serve()


def pytest_collection_finish() -> None:
    """Freeze the collected tests, which live to the end: garbage collection skips them."""
    gc.freeze()
    zygote.collapse_memory()
    gc.set_threshold(20_000, 20, 20)  # with the usual threshold, collections took 5 % of the time
    gc.enable()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Keep names of tests short: they go to the workers and back, and some values have a MiB."""
    return f"{val[:60]!r}" if isinstance(val, str | bytes) and len(val) > 200 else None


def pytest_unconfigure() -> None:
    """Freeze all objects: pytest collects garbage five times, which takes seconds after torch."""
    gc.freeze()


@functools.cache
def gpu_missing() -> str:
    """Return why GPU tests cannot run here, empty when they can."""
    from harness.devices import inventory

    cards = [device for device in inventory.inventory() if device.kind != "cpu"]
    usable = [card for card in cards if not card.unusable]
    return "" if usable else (cards[0].unusable if cards else "this machine has no GPU")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Have a worker send one report of a passed test: six messages per test took seconds.

    Durations and JUnit files need the reports of set-up and teardown too.
    """
    options = item.config.option
    if not hasattr(item.config, "workerinput") or options.durations or options.xmlpath:
        return None
    for report in runner.runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and (reason := gpu_missing()):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def one_lock_for_a_card(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch,
                        tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have all workers of a test run use the same lock of a card."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.setenv("KOPT_LOCK_DIR", str(tmp_path_factory.getbasetemp().parent / "locks"))


@pytest.fixture(autouse=True, scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Set the folder where `once_per_run` stores what one test worker computes for all."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    folder.mkdir(exist_ok=True)
    os.environ["KOPT_TEST_SHARED"] = str(folder)


@pytest.fixture(autouse=True, scope="session")
def zygotes_of_the_run() -> None:
    """Have all workers of this run share their zygotes, whose imports take seconds."""
    from harness.isolation.zygote_client import Zygote
    from tests.support.programs import zygote_broker

    Zygote.inherited = staticmethod(zygote_broker.inherited_or_of_run)  # type: ignore


@pytest.fixture(autouse=True, scope="session")
def plain_git() -> None:
    """Ignore the git settings of the person who runs the tests."""
    os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
    os.environ["GIT_CONFIG_SYSTEM"] = os.devnull
    for name, value in (("AUTHOR", "a test"), ("COMMITTER", "a test")):
        os.environ[f"GIT_{name}_NAME"] = value
        os.environ[f"GIT_{name}_EMAIL"] = "test@example.invalid"
