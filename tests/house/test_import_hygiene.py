"""Importing the engine, the harness or a command loads no heavy package.

`make lint` runs this file as a script.
"""

from __future__ import annotations

import subprocess
import sys

from tests.support.paths import ROOT

HEAVY = ("torch", "triton", "pandas", "numpy", "scipy", "textual", "rich",
         "jinja2", "git", "yaml")
EXCEPTED = ("harness.child", "harness.search.bayesian", "harness.formats.yaml_events",
            "engine.repository.guarded_git")
"""Excepted modules: they run in their own processes or are imported when first used."""
PRINT_LOADED = "import sys, {module}; print(*(name for name in {heavy!r} if name in sys.modules))"


def modules(package: str) -> list[str]:
    """Return the dotted names of a package's modules, without those of EXCEPTED."""
    files = sorted((ROOT / package).rglob("*.py"))
    inside = [file.relative_to(ROOT).with_suffix("") for file in files]
    names = [".".join(path.parts).removesuffix(".__init__") for path in inside]
    return [name for name in names if not name.startswith(EXCEPTED)]


def loaded_by(imported: list[str]) -> list[str]:
    """Return which heavy packages a fresh interpreter has loaded after importing these modules."""
    code = PRINT_LOADED.format(module=", ".join(imported), heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=False, timeout=60)
    if done.returncode:
        raise AssertionError(done.stderr)
    return done.stdout.split()


def light_modules() -> list[str]:
    """Return the modules that must stay light: engine, harness and command line, no screens."""
    commands = [name for name in modules("kopt_tui") if ".commands" in name]
    runnable = ("__main__",)
    names = ["kopt_tui.main", *commands, *modules("engine"), *modules("harness")]
    return [name for name in names if not name.endswith(runnable)]


def violations() -> list[str]:
    """Return one line per light module that loads a heavy package."""
    if not loaded_by(light_modules()):
        return []
    heavy_by_module = {name: loaded_by([name]) for name in light_modules()}
    return [f"{name} loads {', '.join(heavy)}" for name, heavy in heavy_by_module.items() if heavy]


def test_no_light_module_imports_a_heavy_package() -> None:
    assert violations() == []


def test_dashboard_imports_neither_the_engine_nor_sqlite() -> None:
    code = "import sys, kopt_tui.dashboard.dashboard; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True,
                          check=True, timeout=60)
    assert "textual.app" in done.stdout.split()
    assert not [name for name in done.stdout.split() if name.startswith("engine.")
                or name == "sqlite3"]


def test_import_of_a_heavy_package_is_detected() -> None:
    assert loaded_by(["numpy"]) == ["numpy"]


if __name__ == "__main__":
    lines = violations()
    print("\n".join(lines) or f"import hygiene: {len(light_modules())} modules stay light")
    sys.exit(bool(lines))
