"""The weights that a manifest names, read once: a campaign keeps them as they were at its start."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import msgspec

from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.write import Writer
from engine.manifest.schema import Manifest
from harness.benchmark.spec import validate
from harness.benchmark.spec.command_target import CommandTarget
from harness.call_trace import weights, weights_csv
from harness.call_trace.weights import Weights
from harness.errors import InputError
from harness.target import Target

EVENT = "weights"
"""In the journal, its reference the hash of the file."""
NAME = "weights.csv"
FIX = "set target.weights in the manifest, or leave it out"


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """A file of weights: where it lay, its bytes, what it says."""

    path: str
    data: bytes
    weights: Weights


def read(manifest: Manifest) -> Given | None:
    """Read the file that a manifest names, None if it names none; a path is the project's.

    Raises InputError where it is no such file.
    """
    if not manifest.target.weights:
        return None
    named = manifest.target.weights
    try:
        path = Path(manifest.project) / Path(named).expanduser()
        data = _bytes(path)
    except FileNotFoundError:
        raise InputError("there is no such file of weights", where=str(path), fix=FIX) from None
    except OSError as error:
        raise InputError(f"the weights cannot be read: {error.strerror}", where=str(path),
                         fix=FIX) from None
    except RuntimeError as error:  # a home of nobody's
        raise InputError(f"the weights cannot be read: {error}", where=repr(named),
                         fix=FIX) from None
    return Given(path=str(path), data=data, weights=weights_csv.parse(data, str(path)))


def keep(given: Given, folder: Folder, writer: Writer, campaign: str) -> None:
    """Copy the file into a new campaign's folder and put its hash on record."""
    (folder.path / NAME).write_bytes(given.data)
    writer.event(campaign, EVENT, given.weights.sha256, message=(
        f"calls of {len(given.weights.shapes)} shapes, told apart by "
        f"{', '.join(given.weights.columns)}, from {given.path}"))


def kept(folder: Folder, reader: Reader, campaign: str) -> Weights | None:
    """Return a campaign's weights, None if it has none, whatever its manifest says by now.

    Raises InputError if they are not those on record.
    """
    told = reader.events_of(campaign, EVENT)
    if not told:
        return None
    place = folder.path / NAME
    try:
        data = _bytes(place)
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != told[0].ref:
        raise InputError("the weights are not those that the campaign began with",
                         where=str(place), fix="put the file back, or start a campaign anew")
    return weights_csv.parse(data, str(place))


def applied(task: Target | CommandTarget,
            found: Weights | None) -> tuple[Target | CommandTarget, tuple[str, ...]]:
    """Return a target with its weights, and what is to be said of shapes that do not match.

    What a benchmark's rows are is known, and told, when it has run. Raises InputError for weights
    of other shapes.
    """
    if found is None:
        return task, ()
    if isinstance(task, Target):
        return weights.weighted(task, found)
    weighed = replace(task, weights=found)
    validate.check(weighed)
    return weighed, ()


def _bytes(path: Path) -> bytes:
    """Read a file as far as it can be one of weights, and one byte more if there is more."""
    with path.open("rb") as file:
        return file.read(weights_csv.LIMITS["bytes"] + 1)
