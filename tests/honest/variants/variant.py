"""An honest candidate of a table, and the name that the id of its test contains."""

from __future__ import annotations

from typing import NamedTuple

from tests.honest.case import Honest


class Variant(NamedTuple):
    id: str
    honest: Honest
