"""A look by span: each span's sums are kept apart, and with those of kept spans add up to a whole look's."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from recordmill.pipeline.build.base.live_analysis import LiveAnalysis
from recordmill.pipeline.build.summaries.look import (
    KeptSums,
    Look,
    PartialSums,
    Sums,
    full_buckets,
    learned,
    statistics_look,
)
from recordmill.pipeline.build.worker.read_chunk import LookReader
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.sources.source_reader import Chunk
from tests.looks import planned_look
from tests.messages import raises
from tests.tables import write_jsonl

SPEC = """
name: days
source: {format: jsonl, path: "FOLDER/{span}/rows.jsonl"}
splits: {train: 9, test: 1}
label: label
features:
  label: {kind: category}
  text: {kind: text, vocabulary: 4}
  piece: {kind: text, column: text, tokenizer: wordpiece, vocabulary: 60}
  price: {kind: number, optional: true, impute: median}
  rank: {kind: number, column: price, quantiles: 3, optional: true}
  image: {kind: image, size: [4, 4], normalize: dataset}
"""
DAYS = ("monday", "tuesday", "wednesday")


def rows_of(day: str) -> Iterable[dict[str, Any]]:
    first = DAYS.index(day) * 20
    for number in range(first, first + 20):
        words = " ".join(f"word{number % (3 + first % 7)} {day}" for _ in range(number % 4))
        image = f"{number % 5}.png"
        yield {"label": f"class{number % 3}", "text": words, "price": number * 1.5 - first, "image": image}


@pytest.fixture
def days(tmp_path: Path) -> Path:
    for day in DAYS:
        (tmp_path / day).mkdir()
        write_jsonl(tmp_path / day / "rows.jsonl", rows_of(day))
        for number in range(5):
            Image.new("RGB", (4, 4), (number * 40, DAYS.index(day) * 60, 9)).save(tmp_path / day / f"{number}.png")
    return tmp_path


def look_at(look: Look, chunks: Iterable[Chunk]) -> Sums:
    """Looks at chunks, as the Beam job."""
    sums, reader = PartialSums(look.summaries), LookReader(look)
    parts, spans = dict[str, list[bytes]](), dict[str, list[str]]()
    elements = [each for chunk in chunks for each in sums.add(reader.read(chunk), look.planned.spans[chunk.source])]
    for key, part in [*elements, *sums.flush()]:
        parts.setdefault(key, []).append(part)
    for key, several in parts.items():
        bucket, span = look.merge_span(key, several)
        spans.setdefault(bucket, []).append(span)
    for key in dict.fromkeys([*spans, *(look.kept.keys() if look.kept else ())]):  # noqa: SIM118
        look.add_up(key, spans.get(key, []))
    return look.finish()


def published(look: Look, folder: Path) -> dict[str, str]:
    """Writes a look's buckets as in a version; returns their digests by path."""
    files = dict(full_buckets(look.planned.workspace))
    for file, data in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(data)
    return {file: hashlib.sha256(data).hexdigest() for file, data in files.items()}


def chunks_of(look: Look, chunks: Iterable[Chunk], days: Iterable[str]) -> list[Chunk]:
    return [chunk for chunk in chunks if look.planned.spans[chunk.source] in days]


def test_kept_sums_and_those_of_new_rows_are_exactly_those_of_all_rows(days: Path, tmp_path: Path) -> None:
    whole, chunks = planned_look(tmp_path / "whole", SPEC.replace("FOLDER", str(days)), 200)
    expected = learned(whole, look_at(whole, chunks))
    files = published(whole, tmp_path / "whole-version")
    assert {file.split("/")[1] for file in files if file.startswith("spans/")} == set(DAYS)

    first, chunks = planned_look(tmp_path / "first", SPEC.replace("FOLDER", str(days)), 300)
    look_at(first, chunks_of(first, chunks, DAYS[:2]))
    before = published(first, tmp_path / "live")
    by_span = {file: sha256 for file, sha256 in before.items() if file.startswith("spans/")}
    summed = {file: sha256 for file, sha256 in before.items() if file.startswith("summaries/")}
    for number, kept in enumerate((by_span, summed)):
        new, chunks = planned_look(tmp_path / f"new{number}", SPEC.replace("FOLDER", str(days)), 100)
        new = replace(new, kept=KeptSums(str(tmp_path / "live"), kept, count=True))
        found = learned(new, look_at(new, chunks_of(new, chunks, DAYS[2:])))
        now = published(new, tmp_path / f"next{number}")
        assert replace(found, rows=None) == replace(expected, rows=None)
        assert sum((found.rows or {}).values()) == 20  # those that were read
        assert all(now[file] == sha256 for file, sha256 in files.items() if file in now)
        of_all = [[file for file in each if file.startswith("summaries/")] for each in (now, files)]
        assert of_all[0] == of_all[1]


@pytest.mark.nightly
def test_a_frozen_build_learns_of_the_new_rows_alone_and_still_adds_all_up(days: Path, tmp_path: Path) -> None:
    whole, chunks = planned_look(tmp_path / "whole", SPEC.replace("FOLDER", str(days)))
    look_at(whole, chunks)
    files = published(whole, tmp_path / "live")
    kept = {file: sha256 for file, sha256 in files.items() if file.startswith(("spans/monday", "spans/tuesday"))}
    new, chunks = planned_look(tmp_path / "new", SPEC.replace("FOLDER", str(days)))
    new = replace(new, kept=KeptSums(str(tmp_path / "live"), kept, count=False))
    done = look_at(new, chunks_of(new, chunks, DAYS[2:]))
    alone = new.result("moments", done)["price"]
    assert alone["count"] <= 20 < new.result("moments", look_at(whole, chunks))["price"]["count"]
    now = published(new, tmp_path / "next")
    assert all(now[file] == sha256 for file, sha256 in files.items() if file.startswith("summaries/"))


def test_a_damaged_sum_is_not_added(days: Path, tmp_path: Path) -> None:
    look, _ = planned_look(tmp_path / "b", SPEC.replace("FOLDER", str(days)))
    (tmp_path / "moments").mkdir()
    (tmp_path / "moments/bucket-000.arrow").write_bytes(b"else")
    kept = KeptSums(str(tmp_path), {"moments/bucket-000.arrow": "0" * 64}, count=True)
    with raises(DatasetError, "moments/bucket-000.arrow"):
        replace(look, kept=kept).add_up("moments/000", [])


def test_workers_get_the_absolute_path_of_the_live_version(tmp_path: Path, days: Path) -> None:
    look, _ = planned_look(tmp_path / "run", SPEC.replace("FOLDER", str(days)))
    live = LiveAnalysis("out", Manifest("days", "one", "0" * 64, None, {}, {}), DAYS)
    kept = statistics_look(look.planned, live).kept
    assert kept is not None
    assert kept.folder == os.path.abspath("out/versions/one")
