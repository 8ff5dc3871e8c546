"""`python -m kopt_tui`."""

import sys

from kopt_tui.main import main

sys.exit(main())
