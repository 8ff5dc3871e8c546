"""Draw the rooms of kopt from its imports, and write docs/ARCHITECTURE.md.

`make rooms` rewrites docs/ARCHITECTURE.md, docs/engine.svg and docs/harness.svg. With `--faces` the
script also rewrites the "Face:" line of each room's docstring.
"""

from __future__ import annotations

import re
import sys
import textwrap
from html import escape
from pathlib import Path

from docs.room_map import (
    APART,
    PACKAGES,
    ROOT,
    Room,
    arrows,
    contents,
    direct,
    docstring,
    floors,
    parsed,
    rooms,
    used_from_outside,
)

DOCS = ROOT / "docs"
WIDTH, MARGIN, GAP, FLOOR_GAP, LINE = 1500, 24, 22, 46, 14


def picture(package: str, known: dict[str, Room]) -> str:
    """Return a package's rooms by floor as SVG: a room stands above what it imports."""
    boxes: dict[str, tuple[float, float, float, float]] = {}
    shapes: list[str] = []
    y = 64.0
    for names in floors(package):
        present = [name for name in names if f"{package}.{name}" in known
                   or (ROOT / package / f"{name}.py").exists()]
        if not present:
            continue
        width = min(420.0, (WIDTH - 2 * MARGIN - GAP * (len(present) - 1)) / len(present))
        x = (WIDTH - width * len(present) - GAP * (len(present) - 1)) / 2
        letters = int((width - 20) / 6.1)
        texts = {}
        for name in present:
            full = f"{package}.{name}"
            room = known.get(full) or Room(full, docstring(ROOT / package / f"{name}.py"))
            purpose = textwrap.wrap(room.purpose, letters)
            files = textwrap.wrap("  ".join(contents(room, known)), letters)
            texts[name] = (f"{name}/" if full in known else f"{name}.py", purpose, files)
        height = 34 + LINE * max(len(purpose) + len(files) for _, purpose, files in texts.values())
        for name, (title, purpose, files) in texts.items():
            boxes[f"{package}.{name}"] = (x, y, width, height)
            shapes.append(f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" '
                          'rx="6" class="room"/>')
            shapes.append(f'<text x="{x + 10:.0f}" y="{y + 19:.0f}" class="name">'
                          f"{escape(title)}</text>")
            for number, (style, line) in enumerate([*(("why", line) for line in purpose),
                                                    *(("files", line) for line in files)]):
                shapes.append(f'<text x="{x + 10:.0f}" y="{y + 36 + LINE * number:.0f}" '
                              f'class="{style}">{escape(line)}</text>')
            x += width + GAP
        y += height + FLOOR_GAP
    lines = []
    for source, target in direct(arrows(package)):
        if source in boxes and target in boxes:
            (x1, y1, w1, h1), (x2, y2, w2, _) = boxes[source], boxes[target]
            a, b, c, d = x1 + w1 / 2, y1 + h1, x2 + w2 / 2, y2 - 4
            lines.append(f'<path d="M{a:.0f},{b:.0f} C{a:.0f},{b + 40:.0f} {c:.0f},{d - 40:.0f} '
                         f'{c:.0f},{d:.0f}" class="arrow" marker-end="url(#head)"/>')
    style = (".room{fill:#fff;stroke:#556;stroke-width:1.2} .name{font:bold 14px sans-serif;"
             "fill:#123} .why{font:11px sans-serif;fill:#333} .files{font:10.5px monospace;"
             "fill:#667} .arrow{fill:none;stroke:#8ab;stroke-width:1.3} text.title{font:bold 20px "
             "sans-serif;fill:#123} text.sub{font:12px sans-serif;fill:#556}")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y:.0f}">\n'
            f"<style>{style}</style>\n"
            '<defs><marker id="head" markerWidth="8" markerHeight="8" '
            'refX="6" refY="3" orient="auto">'
            '<path d="M0,0 L6,3 L0,6 z" fill="#8ab"/></marker>'
            f'</defs>\n<rect width="{WIDTH}" height="{y:.0f}" fill="#f7f8fa"/>\n'
            f'<text x="{MARGIN}" y="34" class="title">{package}/</text>\n'
            f'<text x="{MARGIN}" y="52" class="sub">A room stands above what it imports; arrows '
            "that a longer way implies are left out.</text>\n"
            + "\n".join(lines + shapes) + "\n</svg>\n")


def table(package: str, known: dict[str, Room]) -> str:
    """Return a package's rooms as a Markdown table, inner rooms below their own."""
    edges = arrows(package)
    rows = ["| floor | room | what for | face | imports |", "|---|---|---|---|---|"]
    levels = floors(package)
    for number, names in enumerate(levels):
        for name in names:
            full = f"{package}.{name}"
            if full in known:
                members = [full, *sorted(n for n in known if n.startswith(f"{full}."))]
            elif (ROOT / package / f"{name}.py").exists():
                members = [full]
            else:
                continue
            for member in members:
                path = ROOT / Path(*member.split("."))
                room = known.get(member) or Room(member, docstring(path.with_suffix(".py")))
                label = member.removeprefix(f"{package}.").replace(".", "/")
                label += "/" if member in known else ".py"
                face = re.search(r"Face: (.*)", room.doc, re.S)
                below = ", ".join(sorted(t.rpartition(".")[2] for t in edges.get(member, ())))
                rows.append(f"| {len(levels) - number if member == full else ''} | {label} "
                            f"| {room.purpose.replace('|', '/')} "
                            f"| {' '.join(face[1].split()).rstrip('.') if face else ''} "
                            f"| {below} |")
    return "\n".join(rows)


def page(known: dict[str, Room]) -> str:
    """Return docs/ARCHITECTURE.md: its written head, then the tables made from the code."""
    head = (DOCS / "architecture_head.md").read_text().rstrip()
    parts = ["<!-- Made from docs/architecture_head.md and the code: edit those, then "
             "`make rooms`. -->", head]
    for package in PACKAGES:
        parts.append(f"## {package}\n\n{known[package].purpose}")
        if package != "kopt_tui":
            parts.append(f"![The rooms of {package}]({package}.svg)")
        parts.append(table(package, known))
    return "\n\n".join(parts) + "\n"


def outputs() -> dict[Path, str]:
    """Return every file that this script writes, with its text."""
    known = rooms()
    return {DOCS / "ARCHITECTURE.md": page(known),
            **{DOCS / f"{package}.svg": picture(package, known)
               for package in ("engine", "harness")}}


def write_faces() -> None:
    """Let each room's docstring name as its face the modules that other rooms import today."""
    known = rooms()
    used = used_from_outside(known)
    for name, room in known.items():
        if name in PACKAGES or name.startswith(APART) or not room.files:
            continue
        face = ", ".join(sorted(used.get(name, ())))
        path = ROOT / Path(*name.split(".")) / "__init__.py"
        text = path.read_text()
        body = re.sub(r"\n*Face: .*", "", room.doc, flags=re.S).rstrip()
        if face:
            body += "\n\n" + textwrap.fill(f"Face: {face}.", 100) + "\n"
        start, end = text.index('"""'), text.index('"""', text.index('"""') + 3)
        path.write_text(f'{text[:start]}"""{body}{text[end:]}')


if __name__ == "__main__":
    if "--faces" in sys.argv:
        write_faces()
        parsed.cache_clear()
    for file, content in outputs().items():
        file.write_text(content)
        print(file.relative_to(ROOT))
