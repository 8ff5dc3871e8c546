"""Raw outputs of verdicts: one archive each below rounds/round-N/artifacts, listed in the journal.

An archive is a .tar.gz of what the harness kept (see `harness.isolation.raw_outputs`). Its texts
are untrusted. The archives and profiles of lost candidates are deleted, the oldest first, if all
archives together take more than MOST_BYTES.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.campaign.folder import Folder
from engine.journal.read import Reader
from engine.journal.write import Writer
from harness.errors import EnvironmentFault
from harness.formats import file_copy
from harness.isolation import raw_outputs

STORED, REMOVED = "artifacts", "artifacts.removed"
"""The events of a stored archive, and of one that was deleted to make room."""
MOST_BYTES = 256 << 20
READ_BYTES = 2 * raw_outputs.MOST_BYTES
"""Most bytes that are packed for one verdict: its outputs, and the list of its processes."""


class Artifacts(msgspec.Struct, frozen=True, kw_only=True):
    """The archive of one verdict, or of one attempt at a verdict.

    `candidate` is a candidate's id, the start of a commit's id, or a word such as "baseline".
    Paths are relative to the campaign's folder; `profile` is "" without one.
    """

    candidate: str
    purpose: str
    round: int
    device: str
    path: str
    bytes: int
    sha256: str
    files: int
    profile: str = ""


def pack(outputs: Path, folder: Folder, *, candidate: str, purpose: str, round: int,
         device: str) -> Artifacts | None:
    """Pack a folder of outputs into the campaign's folder; None if there are none.

    A profile of kernels is also copied to profiles/. What exceeds READ_BYTES is left out: only a
    candidate can have written so much. Raises OSError.
    """
    files: dict[str, bytes] = {}
    left = READ_BYTES
    for path in sorted(outputs.glob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= left:
            files[path.name] = path.read_bytes()
            left -= len(files[path.name])
    if not files:
        return None
    stem = candidate[:12] if candidate == purpose else f"{candidate[:12]}.{purpose}"
    data = _packed(files)
    path = _write_new(folder.round(round) / "artifacts", stem, ".tar.gz", data)
    profile = next((content for name, content in files.items()
                    if name.endswith(raw_outputs.PROFILE)), None)
    profile_path = None if profile is None else _write_new(
        folder.profiles, f"{stem}.{device.replace(':', '-')}", ".json", profile)
    return Artifacts(
        candidate=candidate, purpose=purpose, round=round, device=device, bytes=len(data),
        path=str(path.relative_to(folder.path)), sha256=hashlib.sha256(data).hexdigest(),
        files=len(files),
        profile="" if profile_path is None else str(profile_path.relative_to(folder.path)))


def record(writer: Writer, reader: Reader, folder: Folder, campaign: str, stored: Artifacts, *,
           most_bytes: int = MOST_BYTES) -> None:
    """Record an archive in the journal, and delete archives of lost candidates to make room."""
    writer.event(campaign, STORED, stored.candidate, **msgspec.to_builtins(stored))
    present = of_campaign(reader, campaign)
    size = sum(outputs.bytes for outputs in present)
    lost = {candidate.id for candidate in reader.candidates(campaign, states=("closed",))}
    for outputs in present:
        if size <= most_bytes:
            break
        if outputs.candidate in lost:
            for path in filter(None, (outputs.path, outputs.profile)):
                (folder.path / path).unlink(missing_ok=True)
            writer.event(campaign, REMOVED, outputs.candidate, path=outputs.path)
            size -= outputs.bytes


def remove_unrecorded(reader: Reader, folder: Folder, campaign: str) -> None:
    """Delete archives that a killed engine wrote to disk and did not record in the journal."""
    known = {outputs.path for outputs in reader.payloads(campaign, STORED, Artifacts)}
    for pattern in ("*.tar.gz", "*.part"):
        for path in folder.rounds.glob(f"round-*/artifacts/{pattern}"):
            if str(path.relative_to(folder.path)) not in known:
                path.unlink(missing_ok=True)


def of_campaign(reader: Reader, campaign: str, *, removed: bool = False) -> list[Artifacts]:
    """Return a campaign's archives, the oldest first; `removed` includes the deleted ones."""
    without_files = set() if removed else removed_paths(reader, campaign)
    newest = {outputs.path: outputs for outputs in reader.payloads(campaign, STORED, Artifacts)}
    return [outputs for outputs in newest.values() if outputs.path not in without_files]


def removed_paths(reader: Reader, campaign: str) -> set[str]:
    """Return the paths of the archives that were deleted to make room."""
    return {removed["path"] for removed in reader.payloads(campaign, REMOVED, dict[str, str])}


def read(folder: Path, stored: Artifacts) -> Mapping[str, bytes]:
    """Return the files of an archive by name. Raises EnvironmentFault if it cannot be read."""
    path = folder / stored.path
    try:
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != stored.sha256:
            raise EnvironmentFault("the archive has changed since it was stored", where=str(path),
                                   fix="do not trust its contents")
        with tarfile.open(fileobj=io.BytesIO(gzip.decompress(data))) as archive:
            return {member.name: file.read() for member in archive
                    if (file := archive.extractfile(member)) is not None}
    except (OSError, EOFError, tarfile.TarError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise EnvironmentFault(f"the outputs cannot be read: {why}", where=str(path),
                               fix="check whether the file was deleted") from None


def _packed(files: Mapping[str, bytes]) -> bytes:
    """Return a compressed archive; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def _write_new(folder: Path, stem: str, suffix: str, data: bytes) -> Path:
    """Write a file under the first free name."""
    path, number = folder / f"{stem}{suffix}", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}-{number}{suffix}"
    file_copy.replace_file(path, data)
    return path
