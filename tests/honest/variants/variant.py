"""An honest candidate of a table, with the name by which a test calls it."""

from __future__ import annotations

from typing import NamedTuple

from tests.honest.case import Honest


class Variant(NamedTuple):
    id: str
    honest: Honest
