"""An agent whose kernel is wrong, then does not compile, then is right.

It leaves a header in a cache folder; the next prompt must say that the header was left out.

With `--hold FILE` its second repair waits until that file is gone; with `--never` every kernel is
wrong.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

SOURCE, PROMPT = Path("scale.c"), Path(sys.argv[1]).read_text()
FORMS = ("out[i] = x[i] * 3.0f;", "out[i] = x[i] * 2.0f", "out[i] = x[i] + x[i];")


def main() -> None:
    print(PROMPT)
    found = re.search(r"Repair, attempt (\d) of 3", PROMPT)
    attempt = int(found[1]) if found else 0
    hold = Path(sys.argv[sys.argv.index("--hold") + 1]) if "--hold" in sys.argv else None
    while attempt == 2 and hold is not None and hold.exists():
        time.sleep(0.05)
    Path("my_cache").mkdir(exist_ok=True)
    Path("my_cache/fast.h").write_text("// left out\n")
    assert not attempt or "my_cache/fast.h (cache folder)" in PROMPT, PROMPT
    text = SOURCE.read_text()
    if attempt:  # the tree has the previous change
        assert "PASSES 1 " in text and ("--never" in sys.argv or FORMS[attempt - 1] in text), text
    else:
        text = text.replace("PASSES 16 ", "PASSES 1 ")
    form = FORMS[min(attempt, len(FORMS) - 1)] if "--never" not in sys.argv else \
        f"out[i] = x[i] * {3 + attempt}.0f;"
    SOURCE.write_text(re.sub(r"out\[i\] = x\[i\] [^}\n]*", form + " ", text))


if __name__ == "__main__":
    main()
