"""A campaign host with a frozen wall clock, so that the records of two runs can be compared."""

from __future__ import annotations

import sys
import time

AT = 1_790_000_000.0
_localtime, _gmtime, _strftime = time.localtime, time.gmtime, time.strftime


def main() -> int:
    time.time = lambda: AT
    time.localtime = lambda at=None: _localtime(AT if at is None else at)
    time.gmtime = lambda at=None: _gmtime(AT if at is None else at)
    time.strftime = lambda form, at=None: _strftime(form, _localtime(AT) if at is None else at)
    from engine.run import host

    sys.argv = ["host", *sys.argv[1:]]
    return host.main()


if __name__ == "__main__":
    sys.exit(main())
