"""The data of simulated nights, and a model of the dataset that it is to become: no line of Recordmill's is in it."""

import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

SPLITS = {"train": 80, "validation": 10, "test": 10}
SPEC = """
name: nights
source: {{format: jsonl, path: '{path}'}}
key: id
analysis: {analysis}
splits: {{train: 80, validation: 10, test: 10}}
shards: {{train: 2, validation: 1, test: 1}}
rejects: {{max_share: 0.9, max_share_per_file: 0.6}}
gate:
  {{rows_lost: 0.3, rows_short: null, rejects: null, duplicates: null, leakage: null,
   features: {{price: false, color: false}}}}
features:
  price: {{kind: number, normalize: {normalize}}}
  name: {{kind: raw}}
  color: {{kind: category}}
"""
FEWEST_ROWS, MOST_ROWS = 20, 60  # of a day
FEWEST_DAYS, MOST_DAYS = 5, 24  # beyond, the oldest goes, as in a dataset that keeps a month
Row = tuple[str, str, str]
"""A row's split, name and color; its name holds its price."""


def split_of(key: str) -> str:
    """The split of a key: blake2b of 24 bytes for `recordmill.v1`, its first number among the shares of 2**64."""
    lowest = 0
    for split, share in SPLITS.items():
        lowest += share
        if _hash(key)[0] < (lowest << 64) // 100:
            return split
    raise AssertionError


def position_of(key: str) -> int:
    """The place of a key in the order of its span."""
    return _hash(key)[1]


def _hash(key: str) -> tuple[int, int, int]:
    split, position, sample = struct.unpack(
        ">3Q", hashlib.blake2b(key.encode(), digest_size=24, person=b"recordmill.v1").digest()
    )
    return split, position, sample


def row_of(key: str, price: int) -> Row:
    """The row that a version must hold."""
    return split_of(key), f"n{price}", color_of(price)


def color_of(price: int) -> str:
    return f"rare{price % 4}" if price > 950 else f"c{price % 5}"


def lines_of(prices: dict[str, int]) -> list[str]:
    """The lines of rows in a file of their day."""
    return [
        json.dumps({"id": key, "price": price, "name": f"n{price}", "color": color_of(price)})
        for key, price in prices.items()
    ]


class Data:
    """The files of all days, the keys that are forgotten, and so the rows that a version must hold."""

    def __init__(self, folder: Path, draw: random.Random) -> None:
        self.folder, self.draw = folder, draw
        self.days: dict[str, dict[str, int]] = {}
        self.broken: dict[str, int] = {}
        self.forgotten = set[str]()
        self.night = 0
        self.log: list[str] = []
        folder.mkdir()
        self.change()

    @property
    def prices(self) -> dict[str, int]:
        """The price of each row, by its key."""
        days = self.days.values()
        return {key: price for day in days for key, price in day.items() if key not in self.forgotten}

    @property
    def rows(self) -> dict[str, Row]:
        """All rows that a version must hold, by their keys."""
        return {key: row_of(key, price) for key, price in self.prices.items()}

    def note(self, event: str) -> None:
        self.log.append(f"night {self.night}: {event}")
        print(self.log[-1], flush=True)

    def change(self) -> None:
        """Does to the files what happens on a day: mostly a new day's rows, sometimes more."""
        while len(self.days) < FEWEST_DAYS:
            self.add()
        changes = [self.add, self._edit, self._grow, self._shrink, self._remove, self._touch, self._break]
        for _ in range(self.draw.choice([1, 1, 2])):
            self.draw.choices(changes, [6, 2, 2, 1, 1, 2, 1])[0]()
        while len(self.days) > MOST_DAYS:
            self._remove_day(min(self.days))

    def add(self) -> str:
        day = f"day-{self.night:04d}-{self.draw.randrange(1000):03d}"
        self.days[day] = self._new_rows(day, self.draw.randint(FEWEST_ROWS, MOST_ROWS))
        self._write(day)
        return day

    def thin(self) -> Callable[[], None]:
        """Removes days with half of the rows; returns what brings them back."""
        total, removed = len(self.prices), dict[str, dict[str, int]]()
        while len(self.prices) > total / 2 and len(self.days) > 2:
            day = self._some_day()
            removed[day] = self.days[day]
            self._remove_day(day)

        def restore() -> None:
            self.days |= removed
            for day in removed:
                self._write(day)

        return restore

    def spoil(self) -> Callable[[], None]:
        """Adds a day whose lines are mostly broken; returns what mends it."""
        day = self.add()
        self.broken[day] = 3 * MOST_ROWS
        self._write(day)

        def mend() -> None:
            del self.broken[day]
            self._write(day)

        return mend

    def write_rows(self, folder: Path) -> None:
        """Writes the rows that a version must hold, and nothing else, into another folder."""
        rows = self.prices
        for day, prices in self.days.items():
            (folder / day).mkdir(parents=True)
            kept = {key: price for key, price in prices.items() if key in rows}
            (folder / day / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines_of(kept)))

    def _write(self, day: str) -> None:
        (self.folder / day).mkdir(exist_ok=True)
        lines = [*lines_of(self.days[day]), *["broken"] * self.broken.get(day, 0)]
        (self.folder / day / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
        self.note(f"{day} has {len(lines)} lines")

    def _new_rows(self, day: str, count: int) -> dict[str, int]:
        first = self.draw.randrange(1 << 40)
        return {f"{day}/{first + row}": self.draw.randrange(1000) for row in range(count)}

    def _some_day(self) -> str:
        return self.draw.choice(sorted(self.days))

    def _edit(self) -> None:
        day = self._some_day()
        for key in self.draw.sample(sorted(self.days[day]), min(3, len(self.days[day]))):
            self.days[day][key] = self.draw.randrange(1000)
        self._write(day)

    def _grow(self) -> None:
        day = self._some_day()
        self.days[day] |= self._new_rows(day, self.draw.randint(1, 5))
        self._write(day)

    def _shrink(self) -> None:
        day = self._some_day()
        for key in sorted(self.days[day])[4:6]:
            del self.days[day][key]
        self._write(day)

    def _remove(self) -> None:
        if len(self.days) > FEWEST_DAYS:
            self._remove_day(self._some_day())

    def _remove_day(self, day: str) -> None:
        del self.days[day]
        self.broken.pop(day, None)
        shutil.rmtree(self.folder / day)
        self.note(f"{day} is removed")

    def _touch(self) -> None:
        day = self._some_day()
        moment = 1e9 + self.draw.randrange(10**8)
        os.utime(self.folder / day / "rows.jsonl", (moment, moment))
        self.note(f"{day} is touched")

    def _break(self) -> None:
        day = self._some_day()
        self.broken[day] = self.draw.randint(0, 2)
        self._write(day)
