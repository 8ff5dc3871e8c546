"""The weights file that a manifest names; a campaign keeps the copy that it started with."""

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
from harness.call_trace import weights
from harness.call_trace.weights import Weights
from harness.errors import InputError
from harness.tasks.target import Target

EVENT = "weights"
"""Kind of the journal's event; its `ref` is the SHA-256 of the file."""
NAME = "weights.csv"
FIX = "set target.weights in the manifest, or leave it out"


class WeightsFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of weights: path, bytes and parsed content."""

    path: str
    data: bytes
    weights: Weights


def read(manifest: Manifest) -> WeightsFile | None:
    """Read the weights file that a manifest names, None if it names none. Raises InputError."""
    if not manifest.target.weights:
        return None
    name = manifest.target.weights
    try:
        path = Path(manifest.project) / Path(name).expanduser()
        data = _bytes(path)
    except FileNotFoundError:
        raise InputError("the file of weights does not exist", where=str(path), fix=FIX) from None
    except OSError as error:
        raise InputError(f"the weights cannot be read: {error.strerror}", where=str(path),
                         fix=FIX) from None
    except RuntimeError as error:  # ~USER without such a user
        raise InputError(f"the weights cannot be read: {error}", where=repr(name),
                         fix=FIX) from None
    return WeightsFile(path=str(path), data=data, weights=weights.parse(data, str(path)))


def store(file: WeightsFile, folder: Folder, writer: Writer, campaign: str) -> None:
    """Copy the file into a new campaign's folder and record its hash."""
    (folder.path / NAME).write_bytes(file.data)
    writer.event(campaign, EVENT, file.weights.sha256, message=(
        f"calls of {len(file.weights.shapes)} shapes by {', '.join(file.weights.columns)}, "
        f"from {file.path}"))


def load_stored(folder: Folder, reader: Reader, campaign: str) -> Weights | None:
    """Return the weights that a campaign started with, None if it has none. Raises InputError."""
    events = reader.events_of(campaign, EVENT)
    if not events:
        return None
    place = folder.path / NAME
    try:
        data = _bytes(place)
    except OSError:
        data = b""
    if hashlib.sha256(data).hexdigest() != events[0].ref:
        raise InputError("the weights are not those that the campaign started with",
                         where=str(place), fix="restore the file, or start a new campaign")
    return weights.parse(data, str(place))


def apply(task: Target | CommandTarget,
          shape_weights: Weights | None) -> tuple[Target | CommandTarget, tuple[str, ...]]:
    """Return a target with its weights, and notes about shapes that do not match.

    A benchmark gets no notes here: its rows are known only after its first run. Raises InputError
    if the weights are of other shapes.
    """
    if shape_weights is None:
        return task, ()
    if isinstance(task, Target):
        return weights.weighted(task, shape_weights)
    weighted = replace(task, weights=shape_weights)
    validate.check(weighted)
    return weighted, ()


def _bytes(path: Path) -> bytes:
    """Read a file; of one that is too large for weights, only one byte more than is allowed."""
    with path.open("rb") as file:
        return file.read(weights.LIMITS["bytes"] + 1)
