"""An honest candidate in a table, and the name that its test's id contains."""

from __future__ import annotations

from typing import NamedTuple

from tests.honest.case import Honest


class Variant(NamedTuple):
    id: str
    honest: Honest
