"""Draw a picture of the dashboard on a real workspace: `python bench/picture.py --help`.

It draws the README's docs/dashboard.svg.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from pathlib import Path

from kopt_tui.dashboard.dashboard import Dashboard


async def draw(workspace: Path, campaign: str, size: tuple[int, int], keys: list[str],
               out: Path) -> None:
    """Open the dashboard without a terminal, press keys, and save its screen as SVG."""
    app = Dashboard(workspace, readonly=True, campaign=campaign)
    async with app.run_test(size=size) as pilot:
        await _wait_for_snapshot(app)
        for key in keys:
            await pilot.press(key)
            await pilot.pause(0.6)
        await pilot.pause(0.6)
        out.write_text(app.export_screenshot(title=f"kopt {campaign}".strip()))


async def _wait_for_snapshot(app: Dashboard, limit_s: float = 10.0) -> None:
    deadline = time.monotonic() + limit_s
    while not app.snapshot.at:
        if time.monotonic() > deadline:
            raise SystemExit("the workspace's journal could not be read in time")
        await asyncio.sleep(0.02)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--campaign", default="", help="open it on this campaign")
    parser.add_argument("--size", default="120x36", help="columns and lines")
    parser.add_argument("--keys", default="", help="keys to press, separated by commas")
    args = parser.parse_args()
    columns, lines = (int(part) for part in args.size.split("x"))
    keys = [key for key in args.keys.split(",") if key]
    asyncio.run(draw(args.workspace, args.campaign, (columns, lines), keys, args.out))


if __name__ == "__main__":
    main()
