"""Copy folders so that writes to a copy never change the original, and replace files atomically.

Blocks are cloned if the file system can do that, and otherwise bytes are copied. Hard links are not
used: writing through one of them would change all others, even read-only ones.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

FICLONE = 0x40049409
MOST_FILES = 200_000
_NO_CLONE = (errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.EPERM, errno.ENOSYS)


class FolderTooLarge(Exception):
    """A folder exceeds the limits of a copy; the partial copy is deleted."""


def open_plain(path: str | Path, *, dir_fd: int | None = None) -> BufferedReader:
    """Open a plain file; follow no link and wait for no pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                         dir_fd=dir_fd)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    return open(descriptor, "rb")


def copy_file(source: Path, target: Path) -> None:
    """Copy a plain file with its times. Raises OSError, also for a link."""
    target.unlink(missing_ok=True)
    with open_plain(source) as reading:
        status = os.fstat(reading.fileno())
        mode = stat.S_IMODE(status.st_mode) & 0o777 | stat.S_IWUSR
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(target, flags, 0o600), "wb") as writing:
            if not _clone(reading.fileno(), writing.fileno()):
                shutil.copyfileobj(reading, writing, 1 << 20)
            writing.flush()
            os.fchmod(writing.fileno(), mode)
            os.utime(writing.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically: even after a power failure, no reader sees half of it."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def copy_sources(project: Path, target: Path, *, skipped: Sequence[str] = (".git",)) -> None:
    """Copy a project with its links, without pipes, sockets and what is named in `skipped`."""
    named = shutil.ignore_patterns(*skipped)

    def left_out(folder: str, names: list[str]) -> set[str]:
        return named(folder, names) | {
            entry.name for entry in os.scandir(folder) if not (
                entry.is_symlink() or entry.is_dir() or entry.is_file())}

    shutil.copytree(project, target, symlinks=True, dirs_exist_ok=True, ignore=left_out)


def remove(path: Path) -> bool:
    """Delete a folder that a candidate may have changed; return whether it is gone.

    Follows no link. Uses `rm`, because Python's rmtree recurses for each level, and a candidate may
    nest folders without limit.
    """
    delete = ("rm", "-rf", "--", str(path))
    for command in (delete, ("chmod", "-R", "u+rwX", "--", str(path)), delete):
        if not os.path.lexists(path):
            break
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return not os.path.lexists(path)


PathFilter = Callable[[str], bool]
"""Accepts or rejects a path relative to a folder."""


def always(name: str) -> bool:
    return True


def copy_folder(source: Path, target: Path, *, most_bytes: int, should_copy: PathFilter = always,
                enter: PathFilter = always) -> int:
    """Copy the files of a folder that `should_copy` accepts into another; return their number.

    Links that point inside the folder are kept; other links and special files are left out. Raises
    FolderTooLarge or OSError; a target that did not exist before is then deleted.
    """
    is_new, files, size = not target.exists(), 0, 0
    try:
        target.mkdir(parents=True, exist_ok=True)
        for entry, name in walk(source, enter):
            copy = target / name
            if entry.is_symlink():
                link = os.readlink(entry.path)
                if should_copy(name) and _inside(name, link):
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.unlink(missing_ok=True)
                    copy.symlink_to(link)
            elif entry.is_file(follow_symlinks=False) and should_copy(name):
                files, size = files + 1, size + entry.stat(follow_symlinks=False).st_size
                if size > most_bytes or files > MOST_FILES:
                    raise FolderTooLarge(f"{source} holds more than {most_bytes >> 20} MiB")
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy_file(Path(entry.path), copy)
    except (FolderTooLarge, OSError):
        if is_new:
            remove(target)
        raise
    return files


def walk(folder: Path, enter: PathFilter = always) -> Iterator[tuple[os.DirEntry[str], str]]:
    """Yield each entry below a folder and its relative path; enter folders that `enter` accepts."""
    folders = [str(folder)]
    while folders:  # iterative: folders may be nested deeper than Python can recurse
        with os.scandir(folders.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                name = os.path.relpath(entry.path, folder)
                yield entry, name
                if entry.is_dir(follow_symlinks=False) and enter(name):
                    folders.append(entry.path)


def _inside(name: str, link: str) -> bool:
    """Return whether a link at a relative path points inside the copied folder."""
    if os.path.isabs(link):
        return False
    return not os.path.normpath(os.path.join(os.path.dirname(name), link)).startswith("..")


def _clone(source: int, target: int) -> bool:
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError as error:
        if error.errno not in _NO_CLONE:
            raise
        return False
    return True
