"""The dependencies that a project's packaging files declare, as sets of lines to compare."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import os
import re
import tomllib
from collections.abc import Iterator

from harness.audit.python.names import Module
from harness.audit.python.source_tree import UnreadableSource

FILES = ("requirements*.txt", "*requirements.txt", "constraints*.txt", "pyproject.toml",
         "setup.py", "setup.cfg", "environment*.yml", "environment*.yaml", "conda*.yml",
         "conda*.yaml", "meta.yaml", "Pipfile", "Pipfile.lock", "poetry.lock", "uv.lock",
         "pixi.toml", "CMakeLists.txt", "*.cmake", "conanfile.*", "vcpkg.json", ".gitmodules")
_CMAKE = re.compile(r"^\s*(?:find_package|find_library|FetchContent_\w+|ExternalProject_\w+"
                    r"|CPM\w*|target_link_libraries|link_libraries|pkg_check_modules|file\s*\(\s*"
                    r"DOWNLOAD|include_directories|target_include_directories)\b[^\n]*",
                    re.IGNORECASE | re.MULTILINE)
_DECLARED = re.compile(
    r"\.(?:project\.(?:dependencies|optional-dependencies|requires-python)|build-system"
    r"|dependency-groups|packages|dev-packages|dependencies|source"
    r"|tool\.(?:poetry|pdm|uv|hatch|pixi|conda-lock|scikit-build))[.:]")
_SETUP = frozenset({"install_requires", "extras_require", "setup_requires", "tests_require",
                    "dependency_links"})
_CFG = frozenset({"install_requires", "setup_requires", "tests_require"})


def is_declaration(path: str) -> bool:
    name = os.path.basename(path)
    in_folder = os.path.basename(os.path.dirname(path)) == "requirements" and name.endswith(".txt")
    return in_folder or any(fnmatch.fnmatchcase(name, pattern) for pattern in FILES)


def dependencies(path: str, data: bytes | None) -> frozenset[str]:
    """Return what a file declares; if it cannot be parsed, all its lines."""
    if data is None:
        return frozenset()
    text = data.decode("utf-8", "replace")
    name = os.path.basename(path)
    try:
        if name in ("pyproject.toml", "Pipfile", "pixi.toml"):
            return frozenset(filter(_DECLARED.match, _leaves(tomllib.loads(text))))
        if name == "setup.cfg":
            return frozenset(_of_cfg(text))
        if name == "setup.py":
            return frozenset(_of_setup(Module(data, path)))
    except (ValueError, configparser.Error, UnreadableSource, RecursionError):
        return _lines(text)
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return frozenset(" ".join(match[0].split()) for match in _CMAKE.finditer(text))
    return _lines(text)


def _lines(text: str) -> frozenset[str]:
    stripped = (line.split(" #")[0].strip() for line in text.splitlines())
    return frozenset(line for line in stripped if line and not line.startswith("#"))


def _leaves(part: object, key: str = "") -> Iterator[str]:
    """Yield `key: value` for each value of a TOML document."""
    if isinstance(part, dict):
        for name, inner in part.items():
            yield from _leaves(inner, f"{key}.{name}")
    elif isinstance(part, list):
        for inner in part:
            yield from _leaves(inner, key)
    else:
        yield f"{key}: {part}"


def _of_cfg(text: str) -> Iterator[str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read_string(text)
    for section in parser.sections():
        for option, value in parser.items(section):
            if option in _CFG or section.startswith("options.extras_require"):
                yield from _lines(value)


def _of_setup(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.keyword) and node.arg in _SETUP:
            yield from (inner.value for inner in module.reach(node.value)
                        if isinstance(inner, ast.Constant) and isinstance(inner.value, str))
