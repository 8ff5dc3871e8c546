"""Starts one of the programs in this package: `python -I __main__.py PROGRAM DESCRIPTOR`.

The modules here form a package with a name that no project has, so that a kernel's `watch` or
`inputs` and ours never replace each other. Standard library only.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "kopt_child"


def main() -> None:
    package = ModuleType(PACKAGE)
    package.__path__ = [os.path.dirname(os.path.abspath(__file__))]
    package.__spec__ = ModuleSpec(PACKAGE, None, is_package=True)
    sys.modules[PACKAGE] = package
    gc.disable()  # imports make no garbage: collecting would add a tenth to their time
    program = import_module(f"{PACKAGE}.{sys.argv[1]}")
    gc.enable()
    program.main(int(sys.argv[2]))


if __name__ == "__main__":
    main()
