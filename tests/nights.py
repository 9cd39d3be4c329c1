"""Simulated nights of a dataset that lives, against a model of it that knows none of Recordmill's code.

Days are added, changed, removed or touched, and each night a build runs. Builds, prunes and forgets are killed, disks
fill up, rows fail the build, the gate holds versions back that somebody approves or rejects, versions are rolled back,
and old ones are pruned beside a program that reads them. After each night no row is lost, moved or doubled, and each is
what the model says; a thread reads the live version all the time, whole, from its bytes (`own_records.py`).

    python -m tests.nights --seeds 1 2 3 --nights 30 [--bucket] [--mode frozen]
"""

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.feather

from recordmill import open_dataset
from recordmill.pipeline.verify.verify import verify
from tests import emulators
from tests.forked import start_python
from tests.night_data import SPEC, SPLITS, Data, Row, position_of
from tests.own_records import Read, Version, live_name, read_version, reader_of

TRIES = 12
OK = (0, 3)
"""The statuses of a build that published, or found nothing to do."""
HELD_BACK, FAILED, TOO_MANY_REJECTS = 4, (1, 75), 5
DISK_BYTES = 256 << 20
Rows = dict[str, Row]


class Mode(NamedTuple):
    """The way in which a dataset takes over what is unchanged."""

    analysis: str
    normalize: str
    path: str


MODES = {"frozen": Mode("frozen", "none", "{span}/*.jsonl"), "refresh": Mode("refresh", "z_score", "{span}/*.jsonl"),
    "added": Mode("frozen", "none", "*/*.jsonl")}  # fmt: skip


def mode_of(seed: int) -> str:
    """The mode of a seed; three seeds in a row have all of them."""
    return [*MODES][seed % len(MODES)]


class Watcher(threading.Thread):
    """Reads the live version of an output again and again, and remembers the rows of each version that it saw."""

    def __init__(self, output: str) -> None:
        super().__init__(daemon=True)
        self._read, self._end = reader_of(output), threading.Event()
        self.seen: dict[str, Rows] = {}
        self.reads = 0
        self.fault: Exception | None = None

    def run(self) -> None:
        while not self._end.is_set() and self.fault is None:
            began = time.monotonic()
            self._look()
            self._end.wait(0.05 + 4 * (time.monotonic() - began))

    def _look(self) -> None:
        try:
            name = live_name(self._read)
        except Exception as error:
            self.fault = error if self.seen else None  # the first build makes the live version
            return
        try:
            rows = rows_of(read_version(self._read, name))
            assert self.seen.setdefault(name, rows) == rows, f"{name} has changed"
            self.reads += 1
        except Exception as error:
            if live_name(self._read) == name:  # else it may have been pruned meanwhile
                self.fault = error

    def __enter__(self) -> "Watcher":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self.join()


def rows_of(version: Version) -> Rows:
    """The rows of a version by their keys, each once."""
    described = version.manifest["features"]["color"]
    rows = Rows()
    for split, records in version.records.items():
        for record in records:
            (key,), (name,), (color,) = (record[feature] for feature in ("key", "name", "color"))
            assert key.decode() not in rows, f"{key.decode()} twice in {version.name}"
            assert len(record["price"]) == 1
            rows[key.decode()] = split, name.decode(), str(color - described["first_id"])
    return rows


class Nights:
    """The data, its output, and what its versions should hold."""

    def __init__(self, folder: Path, output: str, seed: int, mode: Mode, fill: Callable[[int], None] | None) -> None:
        self.folder, self.output, self.mode, self.fill = folder, output, mode, fill
        self.draw = random.Random(seed)
        self.data = Data(folder / "data", self.draw)
        spec = SPEC.format(path=f"{folder}/data/{mode.path}", analysis=mode.analysis, normalize=mode.normalize)
        (folder / "dataset.yaml").write_text(spec)
        (folder / "log.txt").touch()
        self.read = reader_of(output)
        self.versions: dict[str, Rows] = {}
        """The rows of each version that was live, as the model has them."""
        self.colors: dict[str, int] = {}
        self.possible: list[Rows] = []
        self.counts = Counter[str]()
        self.longest = 2.0  # seconds of a build

    def go(self, nights: int) -> None:
        """Lets nights pass; each is checked."""
        with Watcher(self.output) as watcher:
            while self.data.night < nights:
                self.data.night += 1
                self._night()
                if watcher.fault is not None:
                    raise watcher.fault
                for name, rows in [*watcher.seen.items()]:
                    self._check_seen(name, rows)
                if self.data.night % 10 == 6:
                    self._compact()
                if self.data.night % 10 == 0:
                    assert verify(self.output, quick=True).is_whole
            self.counts["reads of the live version"] = watcher.reads

    def _night(self) -> None:
        self.possible = []
        self.data.change()
        acts = [self._fail, self._rollback, self._forget, self._prune, self._beside, self._fill, self._thin]
        if self.versions and self.draw.random() < 0.7:
            self.draw.choice(acts)()
        self._settle()
        self._check_rows()
        assert self.build() == 3, self.printed()  # nothing is left to do
        self.counts["nights"] += 1

    def build(self, *options: str, may_die: bool = False, most_bytes: int = 0) -> int:
        """Builds; returns the status."""
        command = "build", "dataset.yaml", "--output", self.output, "--quiet", *options
        return self.run(*command, may_die=may_die, most_bytes=most_bytes)

    def versions_command(self, act: str, *arguments: str, may_die: bool = False) -> None:
        """Runs `recordmill versions`, which must end well."""
        assert self.run("versions", act, self.output, *arguments, may_die=may_die) == 0, self.printed()
        self.counts[act] += 1

    def run(self, *command: str, may_die: bool = False, most_bytes: int = 0) -> int:
        """Runs a command; now and then its process is killed, and the same given again. Returns the last status.

        Files of more than `most_bytes`, if that is not 0, cannot be written, as on a full disk.
        """
        self.possible.append(self.data.rows)
        for _ in range(TRIES):
            with open(self.folder / "log.txt", "wb") as log:
                outputs = {"stdout": log.fileno(), "stderr": log.fileno()}
                began = time.monotonic()
                child = start_python("-m", "recordmill", *command, cwd=self.folder, **outputs)
                if most_bytes and child.pid is not None:
                    with suppress(ProcessLookupError):
                        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
                if may_die and self.draw.random() < 0.25:
                    time.sleep(self.draw.uniform(0.1, self.longest))
                    if child.pid is not None and child.exitcode is None:
                        os.kill(child.pid, signal.SIGKILL)
                child.join()
            self.counts["builds"] += command[0] == "build"
            if child.exitcode is not None and child.exitcode >= 0:
                self.longest = max(0.9 * self.longest, time.monotonic() - began)
                return child.exitcode
            self.counts["kills"] += 1
            self.data.note(f"{command[:2]} is killed")
        raise AssertionError("killed again and again")

    def printed(self) -> str:
        """Returns what happened last, and what the last command printed."""
        return f"{self.data.log[-8:]}\n{(self.folder / 'log.txt').read_text(errors='replace')}"

    def live(self) -> str:
        return live_name(self.read)

    def _settle(self, *options: str) -> None:
        """Builds tonight's data until it is live; somebody approves what the gate holds back."""
        must, may = self._gate_holds()
        status = self.build(*options, may_die=True)
        assert status in (*OK, HELD_BACK), self.printed()
        assert may if status == HELD_BACK else not must, self.printed()
        if status == HELD_BACK:
            self._decide("approve")

    def _decide(self, act: str) -> None:
        """Approves or rejects what is held back, with a reason; the history has both."""
        self.versions_command(act, "--reason", f"night {self.data.night}")
        last = json.loads(self.read("history.jsonl").splitlines()[-1])
        assert (last["act"], last["end"], last["reason"]) == (act, "done", f"night {self.data.night}")
        assert last["live_after"] == self.live()

    def _gate_holds(self) -> tuple[bool, bool]:
        """Whether the gate must, and whether it may hold back a version of tonight's data: `rows_lost` is 0.3."""
        if not self.versions:
            return False, False
        self._check_seen(self.live())
        before = Counter(split for split, *_ in self.versions[self.live()].values())
        after = Counter(split for split, *_ in self.data.rows.values())
        lost = 1 - after.total() / before.total()
        of_splits = [1 - after[split] / rows for split, rows in before.items()]
        may = max(of_splits) > 0.28 or self.counts["rollback"] > 0  # perhaps of these very inputs
        return lost > 0.32 and after.total() >= 100, may

    def _fail(self) -> None:
        """Has a build fail by a day whose lines are mostly broken, and mends it."""
        before, mend = self.live(), self.data.spoil()
        assert self.build(may_die=True) == TOO_MANY_REJECTS, self.printed()
        assert self.live() == before
        self.counts["builds with too many rejects"] += 1
        mend()

    def _rollback(self) -> None:
        """Makes the version before live; the first has none before it."""
        status = self.run("versions", "rollback", self.output)
        self.data.note(f"rollback ends with {status}")
        self.counts["rollback"] += status == 0

    def _forget(self) -> None:
        """Forgets a row, on a day with new rows: without news no build learns anew what the row taught."""
        self.data.add()
        key = self.draw.choice(sorted(self.data.rows))  # perhaps of a row that no version holds yet
        self.data.forgotten.add(key)
        self.data.note(f"{key} is forgotten")
        self.versions_command("forget", key, may_die=True)

    def _prune(self) -> None:
        purge = ["--purge"] if self.draw.random() < 0.5 else []
        self.versions_command("prune", "--keep", "4", "--grace", "0", *purge, may_die=True)

    def _beside(self) -> None:
        """Reads a version while tonight's becomes live and all others are pruned."""
        name = self.live()
        dataset = open_dataset(self.output)
        with dataset.held():
            batches = iter(dataset.evaluation_input("train", batch_size=8, features=[], with_key=True).as_numpy())
            keys = [*next(batches)["key"]]
            self._settle()
            self.versions_command("prune", "--keep", "1", "--grace", "0", may_die=True)
            keys += [key for batch in batches for key in batch["key"]]
        train = {key for key, (split, *_) in self.versions[name].items() if split == "train"}
        assert (len(keys), {key.decode() for key in keys}) == (len(train), train)

    def _fill(self) -> None:
        """Builds where the disk fills up: what is live stays."""
        before = self.live()
        if self.fill is not None:
            self.fill(self.draw.randrange(300_000))
            status = self.build()
            self.fill(DISK_BYTES)
        else:
            status = self.build(most_bytes=self.draw.randrange(100, 40_000))
        self.data.note(f"on a full disk the build ends with {status}")
        assert status in (*OK, HELD_BACK, *FAILED), self.printed()
        if status in FAILED:
            self.counts["builds that a full disk ended"] += 1
            assert self.live() == before

    def _thin(self) -> None:
        """Loses half of the rows; somebody rejects that version and brings them back, or approves it (`_settle`)."""
        restore = self.data.thin()
        if self.draw.random() < 0.5:
            return
        if self.build(may_die=True) == HELD_BACK:
            self._decide("reject")
        restore()

    def _check_rows(self) -> None:
        """Compares the live version with the model: each split's rows in their order, and every value."""
        version = read_version(self.read, self.live())
        rows, prices = self.data.rows, self.data.prices
        span_of = self._spans(version)
        days = {key: day for day, prices in self.data.days.items() for key in prices}
        colors = ids_of(self.read, version)  # each color keeps its own from version to version
        assert all(self.colors.setdefault(name, number) == number for name, number in colors.items())
        train = np.array([price for key, price in prices.items() if rows[key][0] == "train"], np.float64)
        assert version.manifest["rows"]["written"] == len(rows), self.printed()
        for split in SPLITS:
            keys = [key for key, row in rows.items() if row[0] == split]
            keys.sort(key=lambda key: (span_of[days[key]], position_of(key)))
            records = version.records[split]
            assert [record["key"] for record in records] == [[key.encode()] for key in keys], self.printed()
            assert [record["name"] for record in records] == [[rows[key][1].encode()] for key in keys], self.printed()
            assert [record["color"] for record in records] == [[colors.get(rows[key][2], 0)] for key in keys]
            wanted = np.array([prices[key] for key in keys], np.float64)
            if self.mode.normalize != "none":
                wanted = (wanted - train.mean()) / train.std()
            stored = [value for record in records for value in record["price"]]
            np.testing.assert_allclose(stored, wanted, 1e-4, 1e-5)
        self.versions[version.name] = rows

    def _spans(self, version: Version) -> dict[str, str]:
        """Returns the span of each day: its own, or the one of added or compacted files that the version remembers."""
        spans = {day: day for day in self.data.days}
        if "{" not in self.mode.path:
            inputs = pyarrow.feather.read_table(io.BytesIO(self.read(f"versions/{version.name}/inputs.arrow")))
            paths = [path.decode().partition("/")[0] for path in inputs["path"].to_pylist()]
            spans = dict(zip(paths, inputs["span"].to_pylist(), strict=True))
        live = version.manifest["spans"]
        together = {member: name for name, span in live.items() for member in span.get("members", {})}
        return {day: together.get(span, span) for day, span in spans.items()}

    def _check_seen(self, name: str, rows: Rows | None = None) -> None:
        """Compares a version that was live for a moment with what could be live tonight."""
        if name in self.versions:
            return
        known = [*self.possible, *self.versions.values()]
        known += [{key: rows[key] for key in rows.keys() - self.data.forgotten} for rows in known]
        seen = without_colors(rows or rows_of(read_version(self.read, name)))
        fitting = [rows for rows in known if without_colors(rows) == seen]
        assert fitting, (name, self.printed())
        self.versions[name] = fitting[0]

    def _compact(self) -> None:
        """Puts all rows together; where all is learned anew each night, that is a full build, to the bit."""
        self._settle("--compact")
        self._check_rows()
        if self.mode.analysis == "frozen":
            return
        full = self.folder / "full"
        shutil.rmtree(full, ignore_errors=True)
        self.data.write_rows(full / "data")
        (full / "dataset.yaml").write_text(
            (self.folder / "dataset.yaml").read_text().replace(f"{self.data.folder}/", f"{full}/data/")
        )
        command = "build", str(full / "dataset.yaml"), "--output", str(full / "out"), "--quiet", "--compact"
        assert self.run(*command) == 0, self.printed()
        for ours, wanted in zip(described(self.read), described(reader_of(str(full / "out"))), strict=True):
            assert ours == wanted, (differing(ours, wanted), self.printed())


def ids_of(read: Read, version: Version) -> dict[str, int]:
    """Reads the id of each known color."""
    entry = version.manifest["features"]["color"]
    names = read(f"versions/{version.name}/{entry['vocabulary']}").decode().splitlines()
    return {name: number for number, name in enumerate(names, entry["first_id"])}


def differing(ours: Sequence[object], wanted: Sequence[object]) -> list[object]:
    """Shows the first differences between two lists."""
    return [len(ours), len(wanted), *[pair for pair in zip(ours, wanted, strict=False) if pair[0] != pair[1]][:5]]


def described(read: Read) -> tuple[Sequence[object], ...]:
    """Returns all of the live version but the ids of colors, which follow from the versions before."""
    version = read_version(read, live_name(read))
    colors = {number: name for name, number in ids_of(read, version).items()}
    rows = [
        (split, *record["key"], *record["name"], *record["price"], colors.get(record["color"][0]))
        for split, records in version.records.items()
        for record in records
    ]
    shards = [shard["records"] for split in version.manifest["splits"].values() for shard in split["shards"]]
    return rows, shards, [version.manifest["statistics"].get("price")]


def without_colors(rows: Rows) -> dict[str, tuple[str, str]]:
    return {key: (split, name) for key, (split, name, _) in rows.items()}


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[int], None] | None]:
    """Mounts a small tmpfs at a folder, where this user may; yields what fills it up to some free bytes."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        yield None
        return

    def fill(free: int) -> None:
        (folder / "ballast").unlink(missing_ok=True)
        space = os.statvfs(folder)
        if free < space.f_bavail * space.f_bsize:
            with open(folder / "ballast", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_bsize - free)

    try:
        yield fill
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)


def simulate(folder: Path, seed: int, nights: int, mode: str, *, in_bucket: bool = False) -> Counter[str]:
    """Lets nights pass in an empty folder; returns how often each thing happened."""
    disk = nullcontext() if in_bucket else small_disk(folder / "disk")
    with disk as fill, emulators.s3() if in_bucket else nullcontext(str(folder / "disk/out")) as output:
        simulated = Nights(folder, output, seed, MODES[mode], fill)
        try:
            simulated.go(nights)
        except BaseException as error:
            error.add_note(f"seed {seed}, mode {mode}, {simulated.printed()}")
            raise
        return simulated.counts


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs nights of several seeds, one after another, and prints what happened in each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--mode", choices=MODES, help="by default another one for each seed")
    parser.add_argument("--bucket", action="store_true", help="into S3 of this machine instead of a folder")
    given = parser.parse_args(arguments)
    for seed in given.seeds:
        mode = given.mode or mode_of(seed)
        with tempfile.TemporaryDirectory() as folder:
            counts = simulate(Path(folder), seed, given.nights, mode, in_bucket=given.bucket)
        print(f"seed {seed}, {mode}: " + ", ".join(f"{number} {event}" for event, number in counts.items()), flush=True)


if __name__ == "__main__":
    main()
