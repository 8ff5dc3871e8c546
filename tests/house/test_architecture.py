"""Every file belongs to a room; other rooms import only the room's face; pages are current."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from graphlib import TopologicalSorter

from docs import draw_rooms, room_map
from docs.room_map import APART, PACKAGES, module_of, room_of, sources
from tests.support.paths import ROOT

MAX_MODULES, MAX_TOP_FILES = 12, 8
UNLIMITED = ("kopt_tui.commands", "kopt_tui.screens", "kopt_tui.widgets")
"""Rooms that have one file for each verb, screen or pane."""
SHARED_FILE_NAMES = ("kopt_tui/commands", "kopt_tui/screens", "kopt_tui/widgets")
"""Folders whose files may share names: a verb or a screen is named after what it shows."""

ROOMS = room_map.rooms()
MODULES = [module_of(path) for path in sources() if path.name != "__init__.py"]


def test_every_room_states_its_purpose() -> None:
    assert [name for name, room in ROOMS.items() if not room.purpose.endswith(".")] == []


def test_every_file_has_a_room() -> None:
    assert [name for name in MODULES if room_of(name, ROOMS) not in ROOMS] == []


def test_rooms_are_small() -> None:
    full = {name: len(room.files) for name, room in ROOMS.items() if name not in UNLIMITED}
    limit = {name: MAX_TOP_FILES if name in PACKAGES else MAX_MODULES for name in full}
    assert {name: count for name, count in full.items() if count > limit[name]} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count, and those for type checkers only."""
    imported = defaultdict(set)
    for source, target in room_map.imports():
        imported[source].add(target)
    TopologicalSorter(imported).prepare()


def test_other_rooms_import_the_face_only() -> None:
    used = room_map.used_from_outside(ROOMS)
    inside = {f"{name}.{module}" for name, modules in used.items() if name not in PACKAGES
              for module in modules - ROOMS[name].face}
    assert not inside, "name them in the docstring of their room, or import something else"


def test_a_face_names_only_modules_that_other_rooms_use() -> None:
    used = room_map.used_from_outside(ROOMS)
    assert {name: unused for name, room in ROOMS.items() if not name.startswith(APART)
            if (unused := (room.face & set(room.files)) - used.get(name, set()))} == {}


def test_file_names_are_unique() -> None:
    names = Counter(path.name for path in sources()
                    if not path.name.startswith("__")
                    and not str(path.relative_to(ROOT)).startswith(SHARED_FILE_NAMES))
    assert [name for name, count in names.items() if count > 1] == []


def test_class_names_are_unique() -> None:
    modules_by_class = defaultdict(list)
    for path in sources():
        for node in room_map.statements(room_map.parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_class[node.name].append(module_of(path))
    assert {name: found for name, found in modules_by_class.items() if len(found) > 1} == {}


def test_only_one_place_formats_speedups_and_one_decodes_verdicts() -> None:
    texts = {module_of(path): path.read_text() for path in sources()}
    assert [name for name, text in texts.items() if ".2f}x" in text] == []
    assert [name for name, text in texts.items()
            if re.search(r"decode\([^)]*Verdict\)", text)] == ["engine.journal.decoded.recorded"]


def test_generated_pages_are_current() -> None:
    stale = [path.name for path, text in draw_rooms.outputs().items() if path.read_text() != text]
    assert not stale, "run: make rooms"
