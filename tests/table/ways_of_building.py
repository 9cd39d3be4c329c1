"""Ways of building: however a build comes to its end, records hold the values that the cases state."""

import io
import shutil
import signal
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from PIL import Image, ImageOps

import recordmill
from recordmill import Published, RunOptions
from recordmill.pipeline.forget import forget as forget_rows
from recordmill.pipeline.verify.verify import verify
from tests import emulators, test_kills
from tests.forked import CHILDREN
from tests.table.case import ABSENT, ROWS, Case
from tests.table.reading import by_key, records, wrong_records, wrong_values
from tests.table.ways import Found, World, judged, way
from tests.table.world import Table, write_rows

ALL = range(len(ROWS))
STEPS = ("look: done", "shard: reported", "publishing: before LATEST")
"""The stages after which a build is killed, in turn; `test_kills` kills at every step."""
COPY = "-copy"
"""The end of the key of a row that is there twice."""


def _build(table: Table, **options: Any) -> Published:
    return recordmill.build(table.spec(), str(table.folder / "out"), RunOptions(**options))


def _wrong(table: Table, published: Published, rows: Collection[int] = ALL) -> Iterator[str]:
    """Yields what is wrong with a version that should hold some of the rows."""
    found = {key.removesuffix(COPY): held for key, held in records(published.folder).items()}
    if found.keys() != {ROWS[row] for row in rows}:
        yield f"the records are {sorted(found)}"
    yield from wrong_records(table.cases, found)
    yield from map(str, verify(published.folder).findings.problems)


@way("built by two processes", mark="nightly")
def two_processes(world: World) -> Found:
    """The shards' bytes are those of one process."""
    table = world.again("processes")
    return judged(table.cases, _wrong(table, _build(table, processes=2, chunk_bytes=4096)))


@way("a build killed at each stage, and resumed", mark="nightly")
def killed(world: World) -> Found:
    """Each build dies after another stage; the last one goes on to the end."""
    table = world.again("killed")
    codes = []
    for name in STEPS:
        step = replace(test_kills.STEPS[name], call=1)
        child = CHILDREN.Process(target=_build_until, args=(str(table.folder), step))
        child.start()
        child.join()
        codes.append(child.exitcode)
    lines = [] if codes == [-signal.SIGKILL] * len(STEPS) else [f"the builds ended with {codes}"]
    return judged(table.cases, [*lines, *_wrong(table, _build(table))])


def _build_until(folder: str, step: test_kills.Step) -> None:
    test_kills.arm(step)
    recordmill.build(recordmill.load_spec(f"{folder}/dataset.yaml"), f"{folder}/out", RunOptions(chunk_bytes=4096))


@way("built again after rows came", mark="nightly")
def again(world: World) -> Found:
    """The rows of other splits come later: the statistics of `train`, and with them all values, stay."""
    table = world.again("again")
    write_rows(table.folder / "rows.jsonl", table.cases, range(6))
    _build(table)
    write_rows(table.folder / "rows.jsonl", table.cases)
    return judged(table.cases, _wrong(table, _build(table)))


def _spans(world: World, name: str, **spec: Any) -> tuple[Table, Published]:
    """Builds the rows of `train` as a span, and the others as a second one."""
    source = {"format": "jsonl", "path": "days/{span}.jsonl"}
    table = world.again(name, source=source, **spec)
    for span, rows in (("a", range(6)), ("b", range(6, 8))):
        (table.folder / "days").mkdir(exist_ok=True)
        write_rows(table.folder / f"days/{span}.jsonl", table.cases, rows)
        published = _build(table)
    return table, published


@way("built span by span, statistics frozen", mark="nightly")
def frozen(world: World) -> Found:
    """The second span is transformed by the graph of the first."""
    table, published = _spans(world, "frozen")
    return judged(table.cases, _wrong(table, published))


@way("built span by span, statistics refreshed, then compacted", mark="nightly")
def compacted(world: World) -> Found:
    """All spans become one again."""
    table, published = _spans(world, "compacted", analysis="refresh")
    lines = [*_wrong(table, published), *_wrong(table, _build(table, compact=True))]
    return judged(table.cases, lines)


@way("rows forgotten", mark="nightly")
def forget(world: World) -> Found:
    """A row leaves the version; the others stay as they are."""
    table, out = world.built, world.folder / "forgotten"
    shutil.copytree(table.dataset.folder.parents[1], out)
    forget_rows(str(out), [ROWS[1].encode()])
    live = replace(table.published, folder=str(recordmill.open_dataset(out).folder))
    return judged(table.cases, _wrong(table, live, [row for row in ALL if row != 1]))


@way("a trial build (`--limit`)", mark="nightly")
def trial(world: World) -> Found:
    """A trial of more rows than there are holds all."""
    table = world.again("trial")
    return judged(table.cases, _wrong(table, _build(table, limit=1000)))


@way("equal rows left out (`duplicates: drop`)", mark="nightly")
def duplicates(world: World) -> Found:
    """A second row of equal values is left out; rows that differ in anything stay."""
    table = world.again("duplicates", duplicates="drop", rejects={"max_share": 1})
    lines = (table.folder / "rows.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    copies = [line.replace(f'"id": "{key}"', f'"id": "{key}{COPY}"') for key, line in zip(ROWS, lines, strict=True)]
    (table.folder / "rows.jsonl").write_text("".join([*lines, *copies]), encoding="utf-8")
    return judged(table.cases, _wrong(table, _build(table)))


@way("in a bucket (S3)", mark="nightly")
def bucket(world: World) -> Found:
    """Built into an object store, and read from there."""
    table = world.again("bucket")
    with emulators.s3() as url:
        recordmill.build(table.spec(), url)
        lines: list[str] = []
        for split in ("train", "validation", "test"):
            given = recordmill.open_dataset(url).evaluation_input(split, batch_size=6, with_key=True, label=None)
            lines += wrong_values(table.cases, by_key(given.as_numpy()), padded=True)
    return judged(table.cases, lines)


FILTER = """
SEEN = {}

def keep(row):
    SEEN[row["raw"]] = {name: row[name] for name in row}
    return "the last" if row["raw"] == "é7" else None
"""
SEEN_AS: dict[str, Any] = {
    **dict.fromkeys(("image", "mask", "array", "numbers", "boxes", "keypoints"), np.ndarray),
    **dict.fromkeys(("image_sequence", "masks", "texts", "categories", "token_labels"), list),
    **{"text": str | list, "pair": dict, "chat": list | dict, "category": str, "number": float},
    "raw": str | int | float | list | np.ndarray,
}
"""The types of values that are there, by kind."""


@way("left out by a `filter` that sees it", mark="nightly")
def filtered(world: World) -> Found:
    """A function sees each value decoded, and leaves out a row, whose values nothing else then sees."""
    table = world.again("filtered", filter="filter_of_table:keep", rejects={"max_share": 0})
    (table.folder / "filter_of_table.py").write_text(FILTER, encoding="utf-8")
    published = _build(table)
    lines = [*_wrong(table, published, range(7))]
    if published.manifest.rejects["by_reason"] != {"filtered: the last": 1}:
        lines.append(f"rejected are {published.manifest.rejects}")
    seen = sys.modules["filter_of_table"].SEEN
    for name, case in ((name, case) for name, case in table.cases.items() if "cross" not in case.feature):
        lines += [
            f"{name}: row {row} is seen as {each}" for row in ALL if (each := _unlike(case, row, seen[f"é{row}"][name]))
        ]
    return judged(table.cases, lines)


def _unlike(case: Case, row: int, seen: Any) -> str | None:
    """Returns what a filter saw, if it is not the raw value: by type, texts and numbers by value, images by sides."""
    given = (case.raw or next(iter(case.columns.values())))[row]
    if given is ABSENT:
        return repr(seen) if np.size(seen) > 1 and not np.isnan(seen).any() else None  # of some columns, as in a point
    if not isinstance(seen, SEEN_AS[case.kind]):
        return repr(type(seen))
    if case.kind == "image" and given.suffix in (".png", ".jpg"):
        width, height = ImageOps.exif_transpose(Image.open(io.BytesIO(given.content))).size
        return None if seen.shape[:2] == (height, width) else f"an image of the shape {seen.shape}"
    if isinstance(given, int | float) and isinstance(seen, int | float):
        return repr(seen) if np.float32(given) != np.float32(seen) else None
    return repr(seen) if isinstance(given, str) and isinstance(seen, str) and given != seen else None
