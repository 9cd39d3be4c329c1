"""Simulated nights of a dataset that lives: days are added, changed, removed or touched, and each night a build runs.

Builds, prunes and forgets are killed now and then; some nights' rows fail the build, and some nights the live version
was rolled back. The rows of a night are known without any build.
"""

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.feather

from recordmill import open_dataset
from recordmill.pipeline.dataset.manifest import Manifest, read_latest, read_manifest, version_folder
from recordmill.pipeline.dataset.placement import hash_key, split_bounds
from recordmill.pipeline.spec.model import parse_spec
from tests.forked import start_python

SPEC = """
name: nights
source: {{format: jsonl, path: '{path}'}}
key: id
analysis: {analysis}
gate: false
shards: {{train: 2, validation: 1, test: 1}}
rejects: {{max_share: 0.9, max_share_per_file: 0.6}}
features:
  price: {{kind: number, normalize: {normalize}}}
  name: {{kind: raw}}
"""
MOST_ROWS = 40  # of a day
MOST_DAYS = 24  # then the oldest goes, as in a dataset that keeps a month
TRIES = 8
Numbers = npt.NDArray[np.float64]
OK = (0, 3)
"""The statuses of a build that published, or found nothing to do."""


class Nights:
    """The data of a night, its output, and what its rows should be."""

    def __init__(self, folder: Path, seed: int, analysis: str, normalize: str, path: str = "{span}/*.jsonl") -> None:
        self.folder, self.data = folder, folder / "data"
        self.draw = random.Random(seed)
        self.days: dict[str, dict[str, int]] = {}
        self.broken: dict[str, int] = {}
        self.forgotten = set[str]()
        self.number = 0
        self.log: list[str] = []
        self.data.mkdir()
        spec = SPEC.format(path=f"{self.data}/{path}", analysis=analysis, normalize=normalize)
        (folder / "dataset.yaml").write_text(spec)
        self.splits, self.normalize, self.has_templates = parse_spec(spec).splits, normalize, "{" in path
        self._add()
        self._add()

    @property
    def rows(self) -> dict[str, int]:
        """All rows that a version must hold: the price by the key."""
        days = self.days.values()
        return {key: price for day in days for key, price in day.items() if key not in self.forgotten}

    def night(self) -> None:
        """Lets a day pass: the data changes, perhaps fails a build first, and the live version becomes that of it."""
        self.number += 1
        self._change()
        self.draw.choices([lambda: None, self._fail, self._rollback, self._forget, self._prune], [14, 1, 1, 1, 3])[0]()
        assert self.build(may_die=True) in OK, self.printed()
        self.check_rows()
        assert self.build() == 3, self.printed()  # nothing is left to do

    def _change(self) -> None:
        """Does to the data what happens on a day: mostly a new day's rows, sometimes more."""
        for _ in range(self.draw.choice([1, 1, 2])):
            self.draw.choices(
                [self._add, self._edit, self._grow, self._shrink, self._remove, self._touch, self._break],
                [6, 2, 2, 1, 1, 2, 1],
            )[0]()
        while len(self.days) > MOST_DAYS:
            self._remove_day(min(self.days))

    def build(self, *options: str, output: str = "out", may_die: bool = False) -> int:
        """Builds; gives the status."""
        return self.run("build", "dataset.yaml", "--output", output, "--quiet", *options, may_die=may_die)

    def run(self, *command: str, may_die: bool = False) -> int:
        """Runs a command; now and then its process is killed, and the same given again. Gives the last status."""
        for _ in range(TRIES):
            with open(self.folder / "log.txt", "wb") as log:
                outputs = {"stdout": log.fileno(), "stderr": log.fileno()}
                child = start_python("-m", "recordmill", *command, cwd=self.folder, **outputs)
                if may_die and self.draw.random() < 0.25:
                    time.sleep(self.draw.uniform(0.1, 3.0))
                    if child.pid is not None and child.exitcode is None:
                        os.kill(child.pid, signal.SIGKILL)
                child.join()
            if child.exitcode is not None and child.exitcode >= 0:
                return child.exitcode
            self.log.append(f"night {self.number}: {command[0]} is killed")
        raise AssertionError("killed again and again")

    def printed(self) -> str:
        """Gives what happened last, and what the last command printed."""
        return f"{self.log[-8:]}\n{(self.folder / 'log.txt').read_text(errors='replace')}"

    def live(self, output: str = "out") -> Manifest:
        """The manifest of the live version."""
        return read_manifest(version_folder(str(self.folder / output), read_latest(self.folder / output).version))

    def full_build(self) -> None:
        """Builds the data of this night into a new output, `full`, with the rows of all days put together."""
        shutil.rmtree(self.folder / "full", ignore_errors=True)
        assert self.build("--compact", output="full") == 0, self.printed()
        if self.forgotten:
            assert self.run("versions", "forget", "full", *sorted(self.forgotten)) == 0, self.printed()
            assert self.build("--compact", output="full") in OK, self.printed()

    def check_rows(self) -> None:
        """Compares the live version with the rows that are known: their splits, their order, and their values."""
        live = self.live()
        assert live.rows["written"] == len(self.rows), self.printed()
        expected = {split: list(keys) for split, keys in self._expected(live)}
        for split, keys in expected.items():
            stored = self._stored(split)
            assert [key for key, _, _ in stored] == keys, self.printed()
            prices = [self.rows[key] for key in keys]
            assert [name for _, name, _ in stored] == [f"n{price}" for price in prices], self.printed()
            np.testing.assert_allclose(
                [value for *_, value in stored], self._normalized(prices, expected["train"]), 1e-4, 1e-5
            )

    def _expected(self, live: Manifest) -> Iterator[tuple[str, list[str]]]:
        """Gives the keys of each split in their order: span by span, and by the position of their hashes in each."""
        day_of = {key: name for name, day in self.days.items() for key in day}
        span_of = self._spans(live)
        hashes = {key: hash_key(key.encode()) for key in self.rows}
        lowest = 0
        for split, bound in zip(self.splits, split_bounds(self.splits), strict=True):
            keys = [key for key, hashed in hashes.items() if lowest <= hashed.split < bound]
            order = {key: (span_of[day_of[key]], hashes[key].position) for key in keys}
            yield split, sorted(keys, key=order.__getitem__)
            lowest = bound

    def _stored(self, split: str) -> list[tuple[str, str, float]]:
        """Reads the key, the name and the price of each record of a split of the live version."""
        batches = open_dataset(str(self.folder / "out")).evaluation_input(split, batch_size=256, with_key=True)
        return [
            (bytes(key).decode(), bytes(name).decode(), float(price))
            for features in batches.as_numpy()
            for key, name, price in zip(*(features[part] for part in ("key", "name", "price")), strict=True)
        ]

    def _spans(self, live: Manifest) -> dict[str, str]:
        """Gives the span of each day: its own, or the one of added or compacted files that the version remembers."""
        spans = {day: day for day in self.days}
        if not self.has_templates:
            inputs = pyarrow.feather.read_table(self.folder / "out/versions" / live.version / "inputs.arrow")
            paths = [path.decode().partition("/")[0] for path in inputs["path"].to_pylist()]
            spans = dict(zip(paths, inputs["span"].to_pylist(), strict=True))
        together = {member: name for name, span in live.spans.items() for member in span.members}
        return {day: together.get(span, span) for day, span in spans.items()}

    def _normalized(self, prices: list[int], train: list[str]) -> Numbers:
        """Gives the numbers as they are stored, normalized by those of the train split where the spec says so."""
        values, learned = (np.array(numbers, np.float64) for numbers in (prices, [self.rows[key] for key in train]))
        return values if self.normalize == "none" else (values - learned.mean()) / learned.std()

    def check_bytes(self) -> None:
        """Compares the shards of the live version with those of a full build, and what was learned."""
        live, full = (self.live(output) for output in ("out", "full"))
        shards = [
            [(name, shard.records, shard.sha256) for name, split in each.splits.items() for shard in split.shards]
            for each in (live, full)
        ]
        assert shards[0] == shards[1], self.printed()
        assert live.statistics == full.statistics, self.printed()

    def _write(self, day: str) -> None:
        folder = self.data / day
        folder.mkdir(exist_ok=True)
        lines = [json.dumps({"id": key, "price": price, "name": f"n{price}"}) for key, price in self.days[day].items()]
        lines += ["broken"] * self.broken.get(day, 0)
        (folder / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
        self.log.append(f"night {self.number}: {day} has {len(lines)} lines")

    def _new_rows(self, day: str, count: int) -> dict[str, int]:
        first = self.draw.randrange(1 << 40)
        return {f"{day}/{first + row}": self.draw.randrange(1000) for row in range(count)}

    def _add(self) -> str:
        day = f"day-{self.number:04d}-{self.draw.randrange(1000):03d}"
        self.days[day] = self._new_rows(day, self.draw.randint(8, MOST_ROWS))
        self._write(day)
        return day

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
        if len(self.days) > 2:
            self._remove_day(self._some_day())

    def _remove_day(self, day: str) -> None:
        del self.days[day]
        self.broken.pop(day, None)
        shutil.rmtree(self.data / day)
        self.log.append(f"night {self.number}: {day} is removed")

    def _touch(self) -> None:
        day = self._some_day()
        moment = 1e9 + self.draw.randrange(10**8)
        os.utime(self.data / day / "rows.jsonl", (moment, moment))
        self.log.append(f"night {self.number}: {day} is touched")

    def _break(self) -> None:
        day = self._some_day()
        self.broken[day] = self.draw.randint(0, 2)
        self._write(day)

    def _fail(self) -> None:
        """Has a build fail by a day whose lines are mostly broken, and mends it."""
        before, day = self.live().version, self._add()
        self.broken[day] = 90
        self._write(day)
        assert self.build(may_die=True) == 5, self.printed()
        assert self.live().version == before
        del self.broken[day]
        self._write(day)

    def _rollback(self) -> None:
        status = self.run("versions", "rollback", "out")
        self.log.append(f"night {self.number}: rollback ends with {status}")  # the first version has none before it

    def _forget(self) -> None:
        key = self.draw.choice(sorted(self.rows))  # perhaps of a row that no version holds yet
        self.forgotten.add(key)
        self.log.append(f"night {self.number}: {key} is forgotten")
        assert self.run("versions", "forget", "out", key, may_die=True) == 0, self.printed()

    def _prune(self) -> None:
        purge = ["--purge"] if self.draw.random() < 0.5 else []
        self.log.append(f"night {self.number}: prune {purge}")
        assert self.run("versions", "prune", "out", "--keep", "4", "--grace", "0", *purge, may_die=True) == 0, (
            self.printed()
        )
