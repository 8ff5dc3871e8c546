"""`kopt merge`: take over a campaign's result as a merge, one commit or a patch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from engine.campaign import declared_knobs, handover
from engine.history import history, waiting_line
from engine.journal.read import Reader
from engine.journal.records import Campaign
from engine.repository.campaign_repo import SNAPSHOT
from engine.repository.clone import Clone
from engine.repository.patches.patch import Patch
from harness.errors import InputError, Refused
from harness.formats.quantities import listed
from kopt_tui.cli.campaign_choice import choose_campaign, open_journal
from kopt_tui.cli.output import print_json, print_note
from kopt_tui.cli.parser import add_campaign, add_json
from kopt_tui.cli.text_lines import print_text
from kopt_tui.cli.user_repository import UserRepository
from kopt_tui.commands import diff
from kopt_tui.commands.diff import PrintedPatch
from kopt_tui.snapshot import phrases

NAMED = 3
_UNCOMMITTED = {
    True: "no commit was made: files here were changed but not committed when the campaign "
          "started, and still are; look at git diff, and commit them with the result",
    False: "no commit was made: this folder is not the root of a git repository with a commit"}
"""Why the result is applied without a commit; the keys are UserRepository.is_own."""


class TakenResult(msgspec.Struct, frozen=True, kw_only=True):
    """Where a campaign's result went: the project's branch, its files, or a patch file."""

    campaign: str
    form: Literal["merged", "applied", "patch"]
    """An `applied` result is not committed."""
    place: str
    commit: str
    files: tuple[str, ...]


def add(parser: argparse.ArgumentParser) -> None:
    add_campaign(parser)
    parser.add_argument("--as", dest="form", choices=("branch", "squash", "patch"),
                        default=None, help="merge the branch with its commits (default), "
                        "as one commit, or print a patch")
    parser.add_argument("--patch", dest="form", action="store_const", const="patch",
                        help="the same as --as patch")
    parser.add_argument("--output", metavar="FILE", type=Path, default=None,
                        help="where the patch goes (default: standard output)")
    add_json(parser, TakenResult, PrintedPatch)


def run(args: argparse.Namespace) -> int:
    if args.output is not None and args.form != "patch":
        raise InputError("--output needs --patch")
    with open_journal(args) as reader:
        chosen = choose_campaign(reader, args.campaign)
        message = _message(reader, chosen)
        provisional = waiting_line.provisional(reader, chosen.id)
        earlier = [row.commit for row in reader.decisions(chosen.id) if row.kind == "keep"]
    if chosen.best_commit == chosen.base_commit:
        raise Refused(f"{chosen.id} has kept nothing yet" + (provisional and f": {provisional}"),
                      fix="kopt approve keeps it" if provisional else
                      "kopt show lists what it tried")
    handover.check_clone(chosen)
    if args.form == "patch":
        _patch(chosen, args.output, as_json=args.json)
    else:
        _merge(chosen, args, message, earlier)
    if provisional:
        print_note(f"not merged: {provisional}")
    if phrases.best(chosen) == phrases.UNMEASURED:
        print_note("the kept result has not been measured against the baseline: kopt status "
                   "shows when it has")
    return 0


def _merge(chosen: Campaign, args: argparse.Namespace, message: str,
           earlier: Sequence[str]) -> None:
    """Merge what a campaign has kept, or apply it where it cannot be merged. Raises Refused.

    `earlier` are commits that an earlier merge may have applied.
    """
    if args.form is None and not handover.may_commit(chosen):
        raise Refused(f"{chosen.id} makes no commits here: its manifest says git_commit: false",
                      fix="--patch prints the change, --as branch or squash commits it anyway")
    if handover.is_copy(chosen):
        raise Refused(f"{chosen.id} ran on a copy of the kernel's files",
                      fix="kopt merge --patch | git apply: its paths are the project's")
    project, change = UserRepository(Path(chosen.project)), diff.kept(chosen)
    files = tuple(file.path for file in change.files)
    clone = Clone(Path(chosen.path) / "repo.git")
    from_snapshot = project.path.is_dir() and bool(clone.git.find(SNAPSHOT))
    why = "no commit was made: the campaign declared knobs that your branch does not have; " \
        "commit it yourself" \
        if clone.git.find(declared_knobs.BEFORE) else \
        _UNCOMMITTED[project.is_own] \
        if from_snapshot and not project.has_committed(files) else ""
    if why:
        project.apply(_left(chosen, change, earlier).data)
        place, commit = str(project.path), ""
        summary = f"applied {chosen.id} to {listed(files, NAMED)} in {place}; {why}"
    else:
        project.check_clean()
        project.check_identity()
        project.fetch(chosen)
        project.check_new(chosen, files)
        project.merge(chosen, message, squash=args.form == "squash", pick=from_snapshot)
        place, commit = project.line("branch", "--show-current"), project.line("rev-parse", "HEAD")
        summary = f"merged {chosen.id} into {place} as {commit[:12]}"
    if args.json:
        print_json(TakenResult(campaign=chosen.id, form="applied" if why else "merged",
                               place=place, commit=commit, files=files))
    else:
        print_text(summary)


def _left(chosen: Campaign, change: Patch, kept_earlier: Iterable[str]) -> Patch:
    """Return what turns the project's files into the result: all of it, or less after a merge.

    An earlier `kopt merge` may have written what the campaign had kept by then, also one of the
    commits `kept_earlier`, which may be rolled back. Raises Refused if the files hold the result.
    """
    clone, project = Clone(Path(chosen.path) / "repo.git"), Path(chosen.project)
    before, after = diff.result(chosen, clone, chosen.best_commit)
    paths = _paths(change)
    if _holds(clone, project, after, paths):
        raise Refused("already applied: the files hold the result", where=str(project))
    commits = (*reversed(clone.log(chosen.best_commit, chosen.base_commit)), *kept_earlier)
    for commit in dict.fromkeys(commits):
        if commit == chosen.best_commit or not clone.git.find(commit):
            continue
        _, tree = diff.result(chosen, clone, commit)
        changed = paths | _paths(diff.between(chosen, before, tree))
        if _holds(clone, project, tree, changed):
            return diff.between(chosen, tree, after)
    return change


def _paths(patch: Patch) -> set[str]:
    return {name for file in patch.files for name in (file.old_path, file.new_path)
            if name and name != "/dev/null"}


def _holds(clone: Clone, project: Path, tree: str, paths: Collection[str]) -> bool:
    """Return whether the project's files have the contents of a commit or tree."""
    return all(_contents(project / path) == _recorded(clone, tree, path) for path in paths)


def _recorded(clone: Clone, tree: str, path: str) -> bytes | None:
    try:
        return clone.read(tree, path)
    except InputError:
        return None


def _contents(path: Path) -> bytes | None:
    """Return a file's contents, None if there is none; a link is no file."""
    try:
        return None if path.is_symlink() else path.read_bytes()
    except OSError:
        return None


def _patch(chosen: Campaign, output: Path | None, *, as_json: bool) -> None:
    """Print the change or write it to a file, without opening the project."""
    patch = diff.kept(chosen)
    if output is None:
        diff.print_patch(chosen, "", patch.data, as_json=as_json, raw=True)
        return
    output.write_bytes(patch.data)
    if as_json:
        print_json(TakenResult(campaign=chosen.id, form="patch", place=str(output), commit="",
                               files=tuple(file.path for file in patch.files)))
    else:
        print(f"wrote {output}: git apply {output}", file=sys.stderr)


def _message(reader: Reader, chosen: Campaign) -> str:
    """Return the commit message: the headline, then a line per kept candidate not rolled back."""
    past = history.read(reader, chosen.id)
    kept = [decision for decision in past.decisions
            if decision.kind == "keep" and decision.commit not in past.undone]
    gain = phrases.headline(chosen)
    title = f"Make {phrases.clean(chosen.op, 40)} faster" + (f": {gain}" if gain else "")
    lines = [f"- {phrases.clean(decision.reason, 200)} ({decision.commit[:12]})"
             for decision in kept]
    if chosen.speedup is None:
        lines.append("Not accepted: the total gain against the baseline was not measured.")
    return "\n".join([title, "", f"kopt campaign {chosen.id} on "
                      f"{phrases.clean(chosen.device or chosen.gpu, 60)}", *lines])
