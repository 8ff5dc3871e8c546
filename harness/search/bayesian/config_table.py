"""The configurations that a search knows: a whole space, or a growing sample of a huge one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from harness.search.bayesian.encoding import Encoding
from harness.search.bayesian.gaussian_process import Array, Points
from harness.search.space.constraints import Requirement, parse
from harness.search.space.tunable_source import Space
from harness.verdict import Config, Value

ENUMERATED = 400_000
"""Most combinations of choices for which every legal configuration is listed."""
KNOWN = 40_000
"""Most legal configurations of which all are kept; of more, a sample is drawn."""
SAMPLED, SAMPLED_MOST = 4_000, 8_000
"""Configurations of a sample at first, and at most."""
ADDED = 256
"""Configurations added to a sample at a time."""
MOST_CHARACTERS = 100_000
"""Most characters of a requirement after its fixed knobs have been replaced by values."""
TRIES = 4


class ConfigTable:
    """Legal configurations as rows of choice numbers, encoded. Row numbers never change."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self.space, self._rng = space, rng
        self.requirements: tuple[Requirement, ...] = tuple(
            parse(text, tuple(space.choices), most=MOST_CHARACTERS) for text in space.requires)
        self._known: dict[str, dict[int, bool]] = {}
        self._sizes = np.array([len(values) for values in space.choices.values()])
        numbers = self._all()
        self.complete = numbers is not None and len(numbers) <= KNOWN
        if numbers is None:
            numbers = self._random(SAMPLED)
        elif not self.complete:
            numbers = numbers[rng.choice(len(numbers), SAMPLED, replace=False)]
        self.encoding = Encoding(space.choices, self.requirements)
        self.encoding.learn(numbers if len(numbers) else self._numbers_of([space.default]))
        self.numbers = numbers
        self.points = self.encoding.points(numbers)
        self._widths = np.maximum(self._sizes - 1, 1)
        self._rows = {numbers_of_row.tobytes(): row for row, numbers_of_row in enumerate(numbers)}

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def places(self) -> Array:
        """Each choice's position between its knob's first (0) and last (1)."""
        places: Array = (self.numbers / self._widths).astype(np.float32)
        return places

    def config(self, row: int) -> Config:
        return {name: values[number] for (name, values), number
                in zip(self.space.choices.items(), self.numbers[row], strict=True)}

    def row(self, config: Mapping[str, Value]) -> int:
        """Return a configuration's row, added if necessary."""
        return int(self.add(self._numbers_of([config]))[0])

    def add(self, numbers: Array) -> Array:
        """Return the rows of configurations, added if necessary."""
        keys = [row.tobytes() for row in numbers]
        new = list(dict.fromkeys(key for key in keys if key not in self._rows))
        if new:
            by_key = dict(zip(keys, numbers, strict=True))
            added = np.array([by_key[key] for key in new])
            points = self.encoding.points(added)
            self._rows |= {key: len(self.numbers) + i for i, key in enumerate(new)}
            self.numbers = np.concatenate([self.numbers, added])
            self.points = Points(np.concatenate([self.points.features, points.features]),
                                 np.concatenate([self.points.single, points.single]),
                                 np.zeros((len(self.numbers), 0), np.float32))
        return np.array([self._rows[key] for key in keys], int)

    def neighbours(self, row: int) -> Array:
        """Return rows of legal configurations that differ from a row in one knob.

        In an incomplete table these are at most ADDED, none once the table is full.
        """
        numbers = self.numbers[row]
        if self.complete:
            return np.flatnonzero((self.numbers != numbers).sum(1) == 1)
        near = [np.where(np.arange(len(numbers)) == knob, number, numbers)
                for knob, size in enumerate(self._sizes) for number in range(size)
                if number != numbers[knob]]
        near = [near[i] for i in self._rng.permutation(len(near))[:ADDED]]
        legal = self._legal(np.array(near, numbers.dtype).reshape(len(near), len(numbers)))
        return self.add(legal) if len(legal) and self._has_room else np.zeros(0, int)

    def grow(self) -> None:
        """Add to the sample of a space that is not listed completely."""
        if not self.complete and self._has_room:
            self.add(self._random(ADDED))

    @property
    def _has_room(self) -> bool:
        return len(self.numbers) < SAMPLED_MOST

    def _numbers_of(self, configs: Sequence[Mapping[str, Value]]) -> Array:
        return np.array([[values.index(config[name])
                          for name, values in self.space.choices.items()]
                         for config in configs], np.int16)

    def _all(self) -> Array | None:
        if math.prod(int(size) for size in self._sizes) > ENUMERATED:
            return None
        grids = np.meshgrid(*(np.arange(size, dtype=np.int16) for size in self._sizes),
                            indexing="ij")
        return self._legal(np.stack([grid.ravel() for grid in grids], 1))

    def _legal(self, numbers: Array) -> Array:
        legal = np.ones(len(numbers), bool)
        for requirement in self.requirements:
            legal &= self._meets(requirement, numbers)
        return numbers[legal]

    def _meets(self, requirement: Requirement, numbers: Array) -> Array:
        """Return which rows meet a requirement; each combination of its knobs is evaluated once."""
        knobs = [knob for knob, name in enumerate(self.space.choices) if name in requirement.names]
        if not knobs:
            return np.full(len(numbers), requirement.met({}))
        is_numbered = math.prod(int(size) for size in self._sizes[knobs]) < 1 << 62
        combinations, inverse = np.unique(
            np.ravel_multi_index(tuple(numbers[:, knobs].T.astype(int)), self._sizes[knobs])
            if is_numbered else np.arange(len(numbers)), return_inverse=True)
        known = self._known.setdefault(requirement.text, {}) if is_numbered else {}
        first = np.zeros(len(combinations), int)
        first[inverse.reshape(-1)] = np.arange(len(numbers))
        names, choices = list(self.space.choices), list(self.space.choices.values())
        for at, combination in enumerate(combinations.tolist()):
            if combination not in known:
                row = numbers[first[at]]
                known[combination] = requirement.met(
                    {names[knob]: choices[knob][row[knob]] for knob in knobs})
        met = np.array([known[combination] for combination in combinations.tolist()], bool)
        of_rows: Array = met[inverse.reshape(-1)]
        return of_rows

    def _random(self, count: int) -> Array:
        """Draw legal configurations knob by knob; drop bad rows at once, as few may be legal."""
        names = list(self.space.choices)
        due = {name: [requirement for requirement in self.requirements if requirement.names
                      and max(map(names.index, requirement.names)) == knob]
               for knob, name in enumerate(names)}
        sampled = np.zeros((0, len(names)), np.int16)
        for _ in range(TRIES):
            rows = np.zeros((4 * count, len(names)), np.int16)
            for knob, name in enumerate(names):
                rows[:, knob] = self._rng.integers(0, self._sizes[knob], len(rows))
                for requirement in due[name]:
                    rows = rows[self._meets(requirement, rows)]
                if not len(rows):
                    break
                if len(rows) < 4 * count:
                    rows = rows[self._rng.integers(0, len(rows), 4 * count)]
            sampled = np.unique(np.concatenate([sampled, rows]), axis=0)
            if len(sampled) >= count:
                break
        return self._rng.permutation(sampled)[:count]
