"""`kopt run FOLDER --each`: the campaigns of a folder's manifests, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from engine.discovery.module.draft_module import FOLDER, numbered
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.manifest import load
from harness.errors import InputError, KoptError
from harness.formats.quantities import counted
from kopt_tui.cli.event_stream import SUCCESSFUL
from kopt_tui.cli.output import print_table
from kopt_tui.snapshot import phrases

HEADERS = ("file", "campaign", "state", "best", "")
UNFINISHED = ("running", "paused")


def run_each(workspace: Path, folder: Path, run_one: Callable[[str], object], *,
             again: bool = False) -> int:
    """Run every manifest whose campaign has not ended, then print a table of all.

    `run_one` gets a manifest's path or the name of a campaign to continue, and returns when the
    campaign has ended.
    Return 0 if all ended successfully. A later call continues what was interrupted; `again` starts
    another campaign on each manifest.
    """
    paths = manifests(folder)
    rows = []
    is_success, ended = True, 0
    for number, path in enumerate(paths, 1):
        print(f"{number}/{len(paths)} {phrases.clean(path.parent.name)}", flush=True)
        campaign, error = None if again else _read_campaign(workspace, path), ""
        if campaign is None or campaign.state in UNFINISHED:
            try:
                run_one(str(path) if campaign is None else campaign.id)
            except KoptError as raised:
                error = str(raised)
            campaign = _read_campaign(workspace, path)
        else:
            ended += 1
        is_success &= campaign is not None and campaign.state in SUCCESSFUL
        cells = ("", "failed", "", "") if campaign is None else (
            campaign.id, phrases.signed(campaign.state), phrases.best(campaign), campaign.outcome)
        rows.append((path.parent.name, *cells[:3], phrases.clean(error) or cells[3]))
    print_table(HEADERS, rows)
    if ended:
        print(f"{counted(ended, 'campaign')} had already ended; --new starts new ones")
    return 0 if is_success else 1


def manifests(folder: Path) -> list[Path]:
    """Return the manifests that `kopt new FOLDER --each` wrote. Raises InputError for none."""
    manifests = sorted((folder / FOLDER).glob("*/manifest.yaml"),
                       key=lambda path: numbered(path.parent.name))
    if not manifests:
        raise InputError("no manifests here", where=str(folder / FOLDER),
                         fix=f"kopt new {folder} --each writes them")
    return manifests


def _read_campaign(workspace: Path, manifest: Path) -> Campaign | None:
    with closing(Reader(workspace)) as reader:
        return campaign_of(reader, manifest)


def campaign_of(reader: Reader, manifest: Path) -> Campaign | None:
    """Return the newest campaign with a manifest's project and task, None if there is none."""
    requested = load.load(manifest)
    for campaign in reader.campaigns():
        if Path(campaign.project).resolve() != Path(requested.project).resolve():
            continue
        try:
            recorded = load.load(Path(campaign.path) / "manifest.yaml")
        except KoptError:
            continue  # its folder was deleted
        if recorded.target.task == requested.target.task:
            return campaign
    return None
