"""Textual's terminal driver, except that no byte on the input ends the app, and no key is lost."""

from __future__ import annotations

import os
import re
import select
import sys
from codecs import getincrementaldecoder

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

ESCAPE = "\x1b"
ESCAPE_AND_KEY = re.compile(r"\x1b[^\x00-\x20\x7f\[\]OPX^_]")
"""tmux and screen send escape and a key pressed soon after it together, as alt and the key. The
pattern excludes bytes that, after escape, begin a terminal's sequences."""


class TolerantDriver(LinuxDriver):
    """Shows bytes that are not UTF-8 as a replacement character, and drops unknown sequences.

    Textual's own driver ends the app at either, as if it had been left.
    """

    def start_application_mode(self) -> None:
        self._file = sys.__stdout__  # Textual takes stderr, which `kopt 2>log` sends to a file
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def run_input_thread(self) -> None:
        """Read input until the app ends or the terminal is gone."""
        decoder = getincrementaldecoder("utf-8")("replace")
        parser = XTermParser(self._debug)
        while not self.exit_event.is_set():
            typed = ""
            if select.select([self.fileno], [], [], 0.1)[0]:
                data = os.read(self.fileno, 4096)
                if not data:
                    return
                typed = decoder.decode(data)
            try:
                if ESCAPE_AND_KEY.fullmatch(typed):
                    self.process_message(events.Key("escape", ESCAPE))
                    typed = typed.removeprefix(ESCAPE)
                for message in (*(parser.feed(typed) if typed else ()), *parser.tick()):
                    self.process_message(message)
            except Exception:  # drop a sequence that the parser cannot read, and go on
                parser = XTermParser(self._debug)
