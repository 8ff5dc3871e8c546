"""The exceptions of kopt: what went wrong, where, and what to do about it."""

from __future__ import annotations

import errno


class KoptError(Exception):
    """A failure that a person can act on, in one line.

    `exit_code` is that of the command line: 1 the answer is no, 2 bad usage or input, 3 the
    environment.
    """

    exit_code = 3
    may_pass = False
    """Whether the same work may succeed if it is repeated."""

    def __init__(self, what: str, *, where: str = "", fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        return f"{line} ({self.fix})" if self.fix else line


class InputError(KoptError):
    """A manifest, task, patch, configuration or command-line argument is wrong."""

    exit_code = 2


class IncumbentFault(InputError):
    """The incumbent or its benchmark does not work, so that no candidate is to blame."""

    may_pass = True


class EnvironmentFault(KoptError):
    """The machine lacks something: a compiler, a device, space, permission."""


class DeviceFault(EnvironmentFault):
    """A device is lost, unusable or taken; the same work may continue on another."""


class Cancelled(EnvironmentFault):
    """The owner cancelled the work; this says nothing about what was being judged."""


class Refused(KoptError):
    """The request is valid and the answer is no."""

    exit_code = 1


def refuse(*rules: tuple[bool, str]) -> None:
    """Raise ValueError with the message of the first broken rule; rules are (is broken, message).
    """
    for is_broken, message in rules:
        if is_broken:
            raise ValueError(message)


def os_fault(error: OSError) -> EnvironmentFault:
    """Return an error of the operating system as EnvironmentFault, with a fix if one is known."""
    return EnvironmentFault(error.strerror or str(error), where=str(error.filename or ""),
                            fix=_FIXES.get(error.errno or 0, ""))


_FIXES = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space",
          errno.EFBIG: "raise the limit on file sizes", errno.EROFS: "make it writable",
          errno.EACCES: "make it writable", errno.EPERM: "make it writable",
          errno.EMFILE: "raise `ulimit -n`"}
