"""The life of a dataset of days whose source and output are in an object store, by the command line: as in folders."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from recordmill import open_dataset
from recordmill.pipeline.dataset.manifest import Manifest, Shard
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.verify.verify import verify
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.stores.open_store import open_store
from tests import emulators, sharing
from tests.forked import recordmill
from tests.test_reader_input import assert_equal

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STORES = {"s3": (emulators.s3, ()), "gcs": (lambda: emulators.gcs(conditions=True), ("--", "--no_auth"))}
SHARDS = {"frozen": 2, "refresh": 0}
"""The number of shards of the first day that the second version takes over: 0 where its vocabulary differs."""


class Dataset:
    """A dataset of days in a folder or in a store."""

    def __init__(self, url: str, folder: Path, analysis: str, beam_options: tuple[str, ...] = ()) -> None:
        self.source, self.output, self._folder, self._beam_options = f"{url}/in", f"{url}/out", folder, beam_options
        folder.mkdir(exist_ok=True)
        (folder / "dataset.yaml").write_text(sharing.days_spec(self.source, analysis))

    def add(self, day: int) -> None:
        words = [f"word{day * number % 7}" for number in range(1, 60)]
        rows = [
            {"id": f"{day}/{number}", "text": f"{word} {word}s", "number": day * number, "label": "ab"[number % 2]}
            for number, word in enumerate(words)
        ]
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        open_store(self.source).write_if(f"2026-11-{day:02}/rows.jsonl", data, None)

    def build(self, *, expected: ExitCode = ExitCode.PUBLISHED) -> Manifest:
        return self.run("build", "dataset.yaml", "--output", self.output, *self._beam_options, expected=expected)

    def run(self, *command: str, expected: ExitCode = ExitCode.PUBLISHED) -> Manifest:
        """Runs a command of `recordmill`; gives the live version."""
        result = recordmill(*command, cwd=self._folder)
        assert result.returncode == expected, (result.stdout, result.stderr)
        assert verify(self.output).is_whole
        manifest = Base.read(self.output).live
        assert manifest is not None
        return manifest


def life(dataset: Dataset) -> Iterator[Manifest]:
    """Leads a dataset through its life; gives each version."""
    dataset.add(20)
    yield dataset.build()
    dataset.add(21)
    yield dataset.build()
    yield dataset.run("versions", "forget", dataset.output, "20/7", "21/3")
    yield dataset.run("versions", "prune", dataset.output, "--purge")
    dataset.add(22)
    yield dataset.build()


def written(manifest: Manifest) -> dict[str, list[Shard]]:
    """The shards of each split, wherever they lie: in a store one that is kept has the name of its first version."""
    splits = manifest.splits.items()
    return {name: [replace(shard, file="", index="", version=None) for shard in split.shards] for name, split in splits}


def rows_of(manifest: Manifest) -> dict[str, dict[str, int]]:
    return {name: dict(span.rows) for name, span in manifest.spans.items()}


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "analysis"), [("s3", "frozen"), ("s3", "refresh"), ("gcs", "frozen")])
def test_days_in_a_store_are_those_in_a_folder(
    name: str, analysis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # else Beam looks for credentials for 20 s, even with --no_auth
    start: Callable[[], AbstractContextManager[str]]
    start, beam_options = STORES[name]
    local = Dataset(str(tmp_path / "local"), tmp_path / "local", analysis)
    with start() as url:
        there = Dataset(url, tmp_path / "there", analysis, beam_options)
        versions = list[Manifest]()
        for mine, other in zip(life(local), life(there), strict=True):
            assert written(other) == written(mine)
            assert (other.rows, other.statistics) == (mine.rows, mine.statistics)
            assert rows_of(other) == rows_of(mine)
            opened = [open_dataset(each.output) for each in (there, local)]
            assert_equal(*(tuple(each.evaluation_input("train", batch_size=16)) for each in opened))
            versions.append(other)
        first, second, *_, last = versions
        kept = [shard.version for split in second.splits.values() for shard in split.shards].count(first.version)
        assert kept == SHARDS[analysis]
        assert (last.rows["written"], last.rows["forgotten"]) == (175, 2)
        assert there.build(expected=ExitCode.UP_TO_DATE).version == last.version
