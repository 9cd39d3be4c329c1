"""Builds of spans: a build reads what changed alone, and every version is that of a full build of the same data."""

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tensorflow.train import Example

from recordmill.pipeline.build.base.live_analysis import SpanError
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.inputs.input_table import Listings
from recordmill.pipeline.build.make_version import NothingMendedError
from recordmill.pipeline.build.plan.plan import make_plan
from recordmill.pipeline.build.plan.under_way import Build
from recordmill.pipeline.build.run_options import Listener, RunOptions
from recordmill.pipeline.dataset.manifest import Manifest, Shard
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import ExitCode, UserError, code_of
from recordmill.pipeline.forget import forget
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.files import FileInfo, LocalFiles
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.publishing import Published
from tests import tables
from tests.messages import assert_names, raises
from tests.opened import opened
from tests.own_records import frames

Days = dict[str, list[int]]


def write_csv(folder: Path, numbers: list[int]) -> None:
    (folder / "rows.csv").write_text("n,t\n" + "".join(f"{n},row {n}\n" for n in numbers))


def write_jsonl(folder: Path, numbers: list[int]) -> None:
    (folder / "rows.jsonl").write_text("".join(f'{{"n": {n}, "t": "row {n}"}}\n' for n in numbers))


def write_parquet(folder: Path, numbers: list[int]) -> None:
    table = pa.table({"n": [float(n) for n in numbers], "t": [f"row {n}" for n in numbers]})
    pq.write_table(table, folder / "rows.parquet")


def write_images(folder: Path, numbers: list[int]) -> None:
    for path in folder.iterdir():
        if path.stem not in map(str, numbers):
            path.unlink()
    for n in numbers:
        Image.new("RGB", (4, 3), (n % 256, 0, 0)).save(folder / f"{n}.png")


TABLE = "features: {n: {kind: number, normalize: none}, t: {kind: raw}}"
IMAGES = "features: {image: {kind: image, size: [4, 3], normalize: none, store: png}}"
FORMATS: dict[str, tuple[Callable[[Path, list[int]], None], str, str]] = {
    "csv": (write_csv, "{span}/*.csv", TABLE),
    "jsonl": (write_jsonl, "{span}", TABLE),
    "parquet": (write_parquet, "{span}/rows.parquet", TABLE),
    "image_folder": (write_images, "{span}", IMAGES),
}


def write(folder: Path, days: Days, format_: str = "csv") -> None:
    """Writes the days; removes others, and leaves the files of equal ones as they are."""
    for name, numbers in days.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (mark := folder / f".{name}").touch()
        if mark.read_text() != repr(numbers):
            FORMATS[format_][0](folder / name, numbers)
            mark.write_text(repr(numbers))
    for other in [other for other in folder.iterdir() if other.is_dir() and other.name not in days]:
        for path in other.iterdir():
            path.unlink()
        other.rmdir()


def build_days(folder: Path, output: str, format_: str = "csv", more: str = "", **options: Any) -> Published:
    _, path, features = FORMATS[format_]
    spec = f"name: d\nsource: {{format: {format_}, path: '{folder}/{path}'}}\n{features}\n{more}\n"
    spec += "" if "gate:" in more else "gate: false\n"
    listener = options.pop("listener", Listener())
    return build(parse_spec(spec), str(folder.parent / output), RunOptions(**options), listener)


def records(published: Published, *, span: str | None = None) -> dict[str, list[bytes]]:
    """The records of each split, or of one span in it, sorted."""

    def of(shards: Sequence[Shard]) -> list[bytes]:
        files = [Path(published.folder, shard.file) for shard in shards if span in (None, shard.span)]
        return sorted(record for file in files for _, record in frames(file.read_bytes()))

    return {name: of(split.shards) for name, split in published.manifest.splits.items()}


def sums(manifest: Manifest) -> dict[str, Any]:
    """All that a manifest adds up over its rows."""
    splits = {name: (split.records, split.label_counts, split.documents) for name, split in manifest.splits.items()}
    spans = {name: (span.rows, span.files, span.bytes) for name, span in manifest.spans.items()}
    same = {name: getattr(manifest, name) for name in ("rows", "sources", "rejects", "duplicates", "statistics")}
    return {"splits": splits, "spans": spans, "shards": manifest.provenance["shard_inputs_sha256"], **same}


def check_as_full(folder: Path, published: Published, name: str, format_: str = "csv", more: str = "") -> None:
    full = build_days(folder, name, format_, more)
    assert records(published) == records(full)
    assert sums(published.manifest) == sums(full.manifest)
    profile = "profile/features.json"
    assert Path(published.folder, profile).read_bytes() == Path(full.folder, profile).read_bytes()


@pytest.mark.first(1)
@pytest.mark.parametrize(
    "format_", [pytest.param(name, marks=[pytest.mark.nightly] * (name == "image_folder")) for name in FORMATS]
)
def test_a_new_day_is_read_alone(tmp_path: Path, format_: str) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(15, 40)]}
    write(data, days, format_)
    before = build_days(data, "out", format_)
    write(data, days | {"c": [*range(100, 130)]}, format_)
    with opened() as paths:
        after = build_days(data, "out", format_)
    assert not [path for path in paths if path.startswith((f"{data}/a/", f"{data}/b/"))]
    assert [path for path in paths if path.startswith(f"{data}/c/")]
    assert records(after, span="a") == records(before, span="a")
    check_as_full(data, after, "full", format_)


def test_every_night_holds_the_rows_of_a_full_build(tmp_path: Path) -> None:
    data, generator, days = tmp_path / "data", random.Random(7), Days()
    more = "rejects: {max_share: 1}\nduplicates: keep"
    for night in range(5):
        for _ in range(2):
            name = generator.choice("abcde")
            numbers = [generator.randrange(60) for _ in range(generator.randrange(9, 40))]
            days[name] = [*numbers, -1] if generator.random() < 0.3 else numbers
        if len(days) > 2 and generator.random() < 0.6:
            del days[generator.choice(sorted(days))]
        write(data, days)
        published = build_days(data, "out", more=more)
        assert set(published.manifest.spans) == set(days)
        check_as_full(data, published, f"full-{night}", more=more)


def test_a_span_is_built_alone(tmp_path: Path) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(30)], "c": [1, 2, 3]}
    write(data, days)
    before = build_days(data, "out")
    write(data, {"a": [*range(50)], "b": [*range(10)], "d": [7, 8, 9]})
    with opened() as paths:
        after = build_days(data, "out", spans=("b",))
    assert not [path for path in paths if path.startswith((f"{data}/a/", f"{data}/d/"))]
    assert [records(after, span=span) == records(before, span=span) for span in "abc"] == [True, False, True]
    assert {name: span.rows["read"] for name, span in after.manifest.spans.items()} == {"a": 20, "b": 10, "c": 3}
    with raises(SourceError, "--span x", "data") as absent:
        build_days(data, "out", spans=("x",))
    assert code_of(absent.value) is ExitCode.TRY_AGAIN  # it may come later
    with raises(SpanError, "another spec", "build without --span"):
        build_days(data, "out", more="shards: 2", spans=("b",))
    with raises(SpanError, "`analysis: refresh`", "build without --span"):
        build_days(data, "out", more="analysis: refresh", spans=("b",))
    with raises(UserError, "--span", "--compact", "one of them"):
        build_days(data, "out", spans=("a",), compact=True)


class WatchedFiles(LocalFiles):
    """Files that remember the patterns that they were asked for."""

    def __init__(self) -> None:
        self.patterns = list[str]()

    def match(self, pattern: str) -> Sequence[FileInfo]:
        self.patterns.append(pattern)
        return super().match(pattern)


def test_the_files_of_other_spans_are_not_listed(tmp_path: Path) -> None:
    write(tmp_path / "data", {name: [1] for name in "abc"})
    files = WatchedFiles()
    spec = parse_spec(f"name: d\nsource: {{format: csv, path: '{tmp_path}/data/{{span}}/*.csv'}}\n{TABLE}\n")
    Build(spec, str(tmp_path / "out"), Listings(files), RunOptions(spans=("b",))).plan()
    assert files.patterns
    assert all(pattern.startswith(f"{tmp_path}/data/b/") for pattern in files.patterns)


def test_a_touched_span_is_known_by_its_content(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)], "b": [*range(30)]})
    build_days(data, "out")
    os.utime(data / "b" / "rows.csv", (1e9, 1e9))
    again = build_days(data, "out", spans=("b",))
    assert (again.is_new, again.went_live) == (False, False)


def test_a_build_of_one_span_leaves_the_others_changes_to_the_next(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)], "b": [*range(30)]})
    build_days(data, "out")
    write(data, {"a": [*range(50)], "b": [*range(10)], "c": [7, 8, 9]})
    build_days(data, "out", spans=("b",))
    after = build_days(data, "out")
    assert (after.is_new, after.built_spans, after.kept_spans) == (True, ("a", "c"), ("b",))
    check_as_full(data, after, "full")


@pytest.mark.nightly
def test_a_span_that_held_a_forgotten_row_is_not_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)], "b": [*range(30)]})
    before = build_days(data, "out")
    (key,) = Example.FromString(records(before, span="a")["train"][0]).features.feature["key"].bytes_list.value
    forget(str(tmp_path / "out"), [key])
    with raises(SpanError, "span a", "forgotten", "build without --span"):
        build_days(data, "out", spans=("b",))
    write(data, {"a": [*range(20)], "b": [*range(31)]})
    assert build_days(data, "out").manifest.rows["written"] == 50


def test_a_span_that_lost_a_file_is_read_again(tmp_path: Path) -> None:
    data, notes = tmp_path / "data", list[str]()
    write(data, {"a": [*range(20)], "b": [*range(30)], "c": [*range(40)]})
    before = build_days(data, "out")
    shard = next(shard for shard in before.manifest.splits["train"].shards if shard.span == "b")
    for lost in ("spans/a/report.json", shard.file):
        Path(before.folder, lost).unlink()
    with raises(SpanError, "span a", "files of it", "build without --span"):
        build_days(data, "out", spans=("c",))
    after = build_days(data, "out", listener=Listener(on_plan=lambda plan, _: notes.extend(plan.notes)))
    assert (after.is_new, after.built_spans, after.kept_spans) == (True, ("a", "b"), ("c",))
    assert_names(notes, "lacks files: 2 (a, b)")
    check_as_full(data, after, "full")


@pytest.mark.nightly
def test_a_version_without_spans_is_followed_by_one_with_them(tmp_path: Path) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(20, 60)]}
    write(data, days)
    _, path, features = FORMATS["csv"]
    spec = f"name: d\nsource: {{format: csv, path: '{data}/**/*.csv'}}\n{features}\ngate: false"
    build(parse_spec(spec), str(tmp_path / "out"))
    for night, spans in enumerate((["base"], ["added-1", "base"])):
        write(data, days | {f"c{number}": [100 + number] for number in range(night + 1)})
        after = build_folder(data, "out", "csv")
        assert list(after.manifest.spans) == spans
        assert after.manifest.rows["read"] == 61 + night


@pytest.mark.nightly
def test_a_build_that_was_cut_off_goes_on_with_its_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, days, notes = tmp_path / "data", {"a": [*range(40)], "b": [*range(30)]}, list[str]()
    write(data, days)
    build_days(data, "out")
    write(data, days | {"b": [*range(90)], "c": [*range(40)]})
    write_records, calls = ShardWriter.write, iter(range(99))

    def fail_at_the_third(writer: ShardWriter, rows: list[bytes]) -> None:
        if next(calls) == 2:
            raise OSError(5, "Input/output error", "shard")
        write_records(writer, rows)

    with monkeypatch.context() as patch:
        patch.setattr(ShardWriter, "write", fail_at_the_third)
        with raises(Exception, "Input/output error"):
            build_days(data, "out")
    after = build_days(data, "out", listener=Listener(on_note=notes.append))
    assert [note for note in notes if "earlier build" in note]
    check_as_full(data, after, "full")


def test_compact_puts_the_rows_of_all_spans_together(tmp_path: Path) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(30)]}
    write(data, days)
    build_days(data, "out")
    write(data, days | {"c": [*range(50)]})
    build_days(data, "out")
    compacted = build_days(data, "out", more="gate: {}", compact=True)
    fresh = build_days(data, "fresh", compact=True)
    shards, of_fresh = ([split.shards for split in each.manifest.splits.values()] for each in (compacted, fresh))
    assert shards == of_fresh
    assert [len(of_split) for of_split in of_fresh] == [1, 1, 1]
    assert not build_days(data, "out").is_new
    write(data, days | {"c": [*range(50)], "d": [1, 2, 3]})
    with opened() as paths:
        after = build_days(data, "out")
    assert not [path for path in paths if path.startswith(f"{data}/a/")]
    assert list(after.manifest.spans) == ["compact", "d"]
    assert after.manifest.rows["read"] == 103
    assert records(after) == records(build_days(data, "full"))
    write(data, days | {"b": [*range(31)], "c": [*range(50)], "d": [1, 2, 3]})
    assert list((changed := build_days(data, "out")).manifest.spans) == ["a", "b", "c", "d"]
    check_as_full(data, changed, "changed")


def build_folder(folder: Path, output: str, format_: str, **options: Any) -> Published:
    _, path, features = FORMATS[format_]
    path = path.replace("{span}", "**" if "/" in path else "").rstrip("/")
    spec = f"name: d\nsource: {{format: {format_}, path: '{folder}/{path}'}}\n{features}\nanalysis: frozen\ngate: false"
    return build(parse_spec(spec), str(folder.parent / output), RunOptions(**options))


@pytest.mark.parametrize("format_", ["csv", pytest.param("image_folder", marks=pytest.mark.nightly)])
def test_files_that_were_added_are_read_alone(tmp_path: Path, format_: str) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(20, 60)]}
    write(data, days, format_)
    before = build_folder(data, "out", format_)
    assert list(before.manifest.spans) == ["base"]
    write(data, days | {"c": [*range(100, 130)]}, format_)
    with opened() as paths:
        after = build_folder(data, "out", format_)
    assert not [path for path in paths if path.startswith((f"{data}/a/", f"{data}/b/"))]
    assert list(after.manifest.spans) == ["added-1", "base"]
    assert records(after, span="base") == records(before)
    assert records(after) == records(build_folder(data, "full", format_))
    days = {"b": [*range(18, 60)], "c": [*range(100, 130)], "d": [200, 201, 202, 203, *range(210, 230)]}
    write(data, days, format_)
    with opened() as paths:
        mended = build_folder(data, "out", format_)
    assert not [path for path in paths if path.startswith(f"{data}/c/")]
    assert list(mended.manifest.spans) == ["added-1", "added-2", "base"]
    full = build_folder(data, "mended", format_)
    assert records(mended) == records(full)
    assert records(build_folder(data, "out", format_, compact=True)) == records(full)


@pytest.mark.nightly
def test_a_touched_file_that_was_added_is_not_read_again(tmp_path: Path) -> None:
    data, days = tmp_path / "data", {"a": [*range(20)], "b": [*range(20, 60)]}
    write(data, {"a": days["a"]})
    build_folder(data, "out", "csv")
    write(data, days)
    before = build_folder(data, "out", "csv")
    os.utime(data / "b/rows.csv", (1e9, 1e9))
    with opened() as paths:
        touched = build_folder(data, "out", "csv")
    assert (touched.went_live, touched.manifest.version) == (False, before.manifest.version)
    assert not [path for path in paths if path.startswith(f"{data}/a/")]
    os.utime(data / "b/rows.csv", (1.1e9, 1.1e9))
    write(data, days | {"c": [*range(60, 90)]})
    after = build_folder(data, "out", "csv")
    assert (after.built_spans, after.kept_spans) == (("added-2",), ("added-1", "base"))


def build_sources(folder: Path, *paths: str, **options: Any) -> Published:
    sources = "".join(f"\n- {{format: csv, path: '{folder}/{path}'}}" for path in paths)
    spec = f"name: d\nsource:{sources}\n{TABLE}\ngate: false\nrejects: {{max_share: 1}}"
    return build(parse_spec(spec), str(folder / "out"), RunOptions(**options))


def test_a_span_alone_needs_the_sources_of_the_others(tmp_path: Path) -> None:
    for folder in ("data", "more"):
        write(tmp_path / folder, {"a": [*range(20)], "b": [*range(30)]})
    build_sources(tmp_path, "data/{span}/*.csv", "more/{span}/*.csv")
    for paths in (["data/{span}/*.csv"], ["more/{span}/*.csv", "data/{span}/*.csv"]):
        with raises(SpanError, "another spec", "build without --span"):
            build_sources(tmp_path, *paths, spans=("b",))


@pytest.mark.parametrize("path", ["{span}.csv", "{span}", "{span}/*.csv"])
def test_the_name_of_a_span_alone_is_no_glob(tmp_path: Path, path: str) -> None:
    if path == "{span}.csv":
        for name in "ab":
            (tmp_path / f"{name}.csv").write_text("n,t\n" + "".join(f"{n},row\n" for n in range(30)))
    else:
        write(tmp_path, {"a": [*range(20)], "b": [*range(30)]})
    for name in ("*", "?", "[ab]"):
        with raises(SourceError, f"--span {name}", "data"):
            build_sources(tmp_path, path, spans=(name,))


@pytest.mark.nightly
def test_a_file_beside_the_folders_of_images_is_no_span(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)], "b": [*range(30)]}, "image_folder")
    (data / "README.md").write_text("photos by day")
    assert list(build_days(data, "out", "image_folder").manifest.spans) == ["a", "b"]
    with raises(SourceError, "--span README.md", "data"):
        build_days(data, "out", "image_folder", spans=("README.md",))


def test_retry_reads_the_spans_with_rejects_again(tmp_path: Path) -> None:
    data, more = tmp_path / "data", "rejects: {max_share: 1}"
    write(data, {"a": [*range(20)], "b": [*range(30)]})
    with (data / "b/rows.csv").open("a") as file:
        file.write("many,row\n")
    assert build_days(data, "out", more=more).manifest.rows["rejected"] == 1
    with opened() as paths, raises(NothingMendedError, "1 rows", "rejected again"):
        build_days(data, "out", more=more, again=True)
    assert 0 < paths.count(f"{data}/a/rows.csv") < paths.count(f"{data}/b/rows.csv")  # its content is compared


def test_a_day_without_rows_is_a_span(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)]})
    tables.write(data / "b/rows.csv", "")
    first = build_days(data, "out")
    assert {name: span.rows["read"] for name, span in first.manifest.spans.items()} == {"a": 20, "b": 0}
    with raises(SourceError, "--span b", "data"):
        build_days(data, "out", spans=("b",))
    assert not build_days(data, "out").is_new
    write(data, {"a": [*range(20)], "b": [*range(30)]})
    assert [span.rows["read"] for span in build_days(data, "out").manifest.spans.values()] == [20, 30]
    for day in "ab":
        (data / day / "rows.csv").write_text("")
    with raises(SourceError, "data/{span}/*.csv", "row"):
        build_days(data, "out")


def write_json(folder: Path, numbers: list[int]) -> None:
    (folder / "rows.json").write_text(json.dumps([{"n": n} for n in numbers]))


def write_tar(folder: Path, numbers: list[int]) -> None:
    (folder / "rows.tar").write_bytes(tables.tar(*((f"{n}.n", str(n)) for n in numbers)))


FORMS = {"csv": write_csv, "jsonl": write_jsonl, "parquet": write_parquet, "json, rows: '[]'": write_json}


@pytest.mark.parametrize(("form", "write"), [*FORMS.items(), ("webdataset", write_tar)])
def test_the_plan_names_days_without_rows_and_folders_of_no_date(
    tmp_path: Path, form: str, write: Callable[[Path, list[int]], None]
) -> None:
    for day in ("2026-11-20", "2026-11-21", "2026-1-5", "2026-02-30", "notes"):
        (tmp_path / day).mkdir()
        write(tmp_path / day, [] if day == "2026-11-21" else [1])
    (empty,) = (tmp_path / "2026-11-21").iterdir()
    source = f"{{path: '{tmp_path}/{{YYYY}}-{{MM}}-{{DD}}', format: {form}}}"
    spec = parse_spec(f"name: d\nsource: {source}\nfeatures: {{n: {{kind: number, parse: true}}}}")
    notes = make_plan(spec, LocalFiles()).notes
    assert_names(notes[0], f"1 (2026-11-21: 1 file of {empty.stat().st_size:,} bytes)")
    assert_names(notes[-1], ": 2 (", "/2026-02-30, ", "/2026-1-5)")


@pytest.mark.nightly
def test_a_caption_without_its_image_is_no_span(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write(data, {"a": [*range(20)]}, "image_folder")
    (data / "a/notes.txt").write_text("of the day")
    build_folder(data, "out", "image_folder")
    (data / "a/99.txt").write_text("a caption")
    assert not build_folder(data, "out", "image_folder").is_new
    Image.new("RGB", (4, 3), (99, 0, 0)).save(data / "a/99.png")
    (data / "a/more.txt").write_text("of the night")
    with opened() as paths:
        after = build_folder(data, "out", "image_folder")
    assert {name: span.rows["read"] for name, span in after.manifest.spans.items()} == {"added-1": 1, "base": 20}
    assert f"{data}/a/1.png" not in paths
