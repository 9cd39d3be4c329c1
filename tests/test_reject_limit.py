"""A build with more rejects than the spec allows ends as soon as that is certain, publishes nothing, and says why."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill.pipeline.build.attempt.failures import RejectLimits, TooManyRejectsError
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.context.reports import LOOK_REPORTS, chunk_step, shard_step, write_rejects, write_report
from recordmill.pipeline.build.plan.keys import key_parts
from recordmill.pipeline.build.worker import read_chunk
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.pipeline.spec.model import Rejects, load_spec, parse_spec
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.transforms.base.bounds import REJECTS
from tests.messages import assert_names, raises

SPEC = "name: a\nsource: {format: jsonl, path: a.jsonl}\nfeatures: {n: {kind: number}}\n"
CHUNKS = [Chunk(0, 0, "a.jsonl", 1), Chunk(1, 0, "a.jsonl", 1), Chunk(2, 0, "b.jsonl", 1), Chunk(3, 0, "", 1)]


class Job:
    """A job whose steps are done one by one, in files of chunks as `CHUNKS` says."""

    def __init__(self, folder: Path, rows: int = 200, exact: bool = False, **limits: Any) -> None:
        for name in ("reports", "rejects", LOOK_REPORTS):
            (folder / name).mkdir(parents=True)
        self.work: Any = SimpleNamespace(workspace=LocalStore(str(folder)), inline=True)
        plan: Any = SimpleNamespace(chunks=CHUNKS, gaps=frozenset(), rows=rows, rows_are_exact=exact, folders=["day"])
        plan.spec = SimpleNamespace(rejects=Rejects(**limits))
        source = SimpleNamespace(locate=lambda chunk, position: (chunk.file, position + 1))
        plan.sources = [SimpleNamespace(reader=source, index=0)]
        self.check = RejectLimits(plan, self.work)

    def chunk(self, number: int, read: int, bad: int = 0, reason: str = "wrong_type", folder: str = "reports") -> None:
        """A chunk is read, the first rows of which are bad."""
        rejects = [Reject(number, row, reason, f"message {row}", column="price") for row in range(bad)]
        report = {"read": read, "positions": read + 10, "rejects": self._write(chunk_step(number), rejects)}
        write_report(self.work.workspace, f"{folder}/{chunk_step(number)}", report)

    def shard(self, *rejects: Reject) -> None:
        """A shard is built."""
        report = {"rejects": self._write(shard_step(0), list(rejects))}
        write_report(self.work.workspace, f"reports/{shard_step(0)}", report)

    def _write(self, step: str, rejects: list[Reject]) -> str | None:
        return write_rejects(self.work.workspace, f"rejects/{step}", rejects)

    def read_all(self, bad: int) -> None:
        for number in range(4):
            self.chunk(number, 50, bad if number == 0 else 0)


class TakenOver(LocalStore):
    """A workspace whose reports go after they were listed."""

    def read(self, name: str) -> bytes | None:
        return None


def test_reports_that_another_attempt_took_over_are_passed_over(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0)
    job.chunk(0, 50, 50)
    job.work.workspace = TakenOver(str(tmp_path))
    job.check()


@pytest.mark.parametrize(("limit", "bad"), [(None, 50), (0.01, 2), (0, 0), (1, 50)])
def test_as_many_as_are_allowed_are_taken(tmp_path: Path, limit: float | None, bad: int) -> None:
    job = Job(tmp_path, max_share=limit)
    job.check()
    job.read_all(bad)
    job.check()


@pytest.mark.parametrize(("limit", "bad"), [(0.01, 3), (0, 1)])
def test_more_are_not(tmp_path: Path, limit: float, bad: int) -> None:
    job = Job(tmp_path, max_share=limit)
    job.read_all(bad)
    with raises(TooManyRejectsError, f"{bad} of 200 rows", f"max_share allows {limit:.1%}", f"  wrong_type: {bad}"):
        job.check()


def test_the_message_tells_the_three_most_frequent_reasons_with_their_first_example_and_what_to_do(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    job.chunk(0, 50, 2, "missing_value")
    job.chunk(1, 50, 4, "malformed_row")
    job.chunk(2, 50, 3)
    job.chunk(3, 50)
    job.shard(Reject(1, 20, "duplicate_key", "another row has the same key", first_chunk=0, first_position=3))
    with pytest.raises(TooManyRejectsError) as raised:
        job.check()
    first, *reasons, left, last = str(raised.value).splitlines()
    lines = Path(left.split()[-1]).read_text().splitlines()
    assert [json.loads(line)["line"] for line in lines] == [1, 2, 61, 62, 63, 64, 81, 1, 2, 3]
    assert_names(first, "9 of 200 rows", "4.5%", "rejects.max_share", "1.0%")
    expected = [
        ("  malformed_row: 4", "such as day/a.jsonl, line 61, column 'price': message 0"),
        ("  wrong_type: 3", "b.jsonl, line 1, column 'price': message 0"),
        ("  missing_value: 2", "a.jsonl, line 1, column 'price': message 0"),
    ]
    for line, facts in zip(reasons, expected, strict=True):
        assert_names(line, *facts)
    assert_names(last, "rows", "limit", "same command")


def test_a_name_steers_no_terminal_and_begins_no_line(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0)
    job.read_all(0)
    job.shard(Reject(0, 0, "wrong_type", "no", column="a\x1b[2J\nrecordmill: all is well"))
    with raises(TooManyRejectsError, r"column 'a\x1b[2J\nrecordmill: all is well': no"):
        job.check()


def test_a_look_ends_a_build_and_a_chunk_that_is_read_again_counts_once(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0.25)
    for number in range(4):
        job.chunk(number, 50, 12, folder=LOOK_REPORTS)
        job.check()
        job.chunk(number, 50, 12)
        job.check()
    (tmp_path / "again").mkdir()
    job = Job(tmp_path / "again", max_share=0.2)
    for number in range(4):
        job.chunk(number, 50, 12, folder=LOOK_REPORTS)
    with raises(TooManyRejectsError, "48 of 200 rows", "24.0%"):
        job.check()


def test_while_rows_are_read_nothing_is_certain_unless_their_number_is_known(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0.1)
    job.chunk(0, 50, 50)
    job.check()
    for number in (1, 2, 3):
        job.chunk(number, 100)
    with raises(TooManyRejectsError, "50 of 350 rows", "14.3%"):
        job.check()


@pytest.mark.parametrize(("rows", "stops"), [(499, True), (500, False)])
def test_where_the_number_of_rows_is_known_a_build_ends_while_they_are_read(
    tmp_path: Path, rows: int, stops: bool
) -> None:
    job = Job(tmp_path, rows=rows, exact=True, max_share=0.1)
    job.chunk(1, 100, 50)  # the line is not known before the first chunk is read
    if not stops:
        return job.check()
    with raises(TooManyRejectsError, "50 of 100 rows", "a.jsonl, column 'price'"):
        job.check()
    return None


def test_what_shards_reject_counts_as_soon_as_a_shard_is_done(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0.01)
    job.read_all(2)
    job.check()
    job.shard(Reject(2, 7, "undecodable_image", "damaged", column="image"))
    with raises(TooManyRejectsError, "undecodable_image: 1", "b.jsonl, line 8, column 'image'"):
        job.check()


@pytest.mark.parametrize(
    ("bad", "read", "facts"),
    [
        ((5, 0, 0), 20, []),
        ((6, 0, 0), 20, ["6 of 40 rows of a.jsonl", "15.0%", "rejects.max_share_per_file", "12.5%"]),
        ((0, 0, 3), 20, ["3 of 20 rows of b.jsonl", "15.0%"]),
        ((0, 0, 19), 19, []),  # a small file
    ],
)
def test_a_file_has_a_limit_of_its_own(tmp_path: Path, bad: tuple[int, ...], read: int, facts: list[str]) -> None:
    job = Job(tmp_path, max_share=1, max_share_per_file=0.125)
    job.chunk(3, 1000, 900)  # a listing, each of whose rows is a file
    for number, count in enumerate(bad):
        job.chunk(number, read, count)
    if not facts:
        return job.check()
    with raises(TooManyRejectsError, *facts):
        job.check()
    return None


@pytest.mark.parametrize(
    ("limits", "bad", "again", "allows"),
    [
        ({}, 0, 3, ["3 of 200", "max_duplicate_share allows 1.0%", "duplicate_key: 3"]),
        ({"max_share": 0.5}, 0, 50, []),
        ({"max_share": 1, "max_duplicate_share": 0.1}, 150, 20, []),
        ({"max_share": 1, "max_duplicate_share": 0.1}, 150, 21, ["21 of 200", "max_duplicate_share allows 10.0%"]),
        ({"max_share": None, "max_duplicate_share": 0}, 9, 1, ["1 of 200", "max_duplicate_share allows 0.0%"]),
        ({"max_duplicate_share": 1}, 3, 50, ["3 of 200", "rejects.max_share allows 1.0%", "wrong_type: 3"]),
        ({"max_duplicate_share": 1, "max_share_per_file": 0}, 0, 50, []),
    ],
)
def test_rows_that_repeat_a_key_have_a_limit_and_count_for_no_other(
    tmp_path: Path, limits: dict[str, float | None], bad: int, again: int, allows: list[str]
) -> None:
    job = Job(tmp_path, **limits)
    for number in range(4):
        job.chunk(number, 50, bad // 4 + (bad % 4 if number == 3 else 0))
    job.shard(*(Reject(0, n, "duplicate_key", "the same", first_chunk=0, first_position=0) for n in range(again)))
    if not allows:
        return job.check()
    with raises(TooManyRejectsError, *allows):
        job.check()
    return None


def test_filtered_rows_count_for_no_limit(tmp_path: Path) -> None:
    job = Job(tmp_path, max_share=0, max_duplicate_share=0, max_share_per_file=0)
    for number in range(4):
        job.chunk(number, 50, 40, "filtered")
    job.check()


def test_a_limit_is_no_part_of_a_builds_key() -> None:
    assert parse_spec(SPEC).rejects == Rejects(max_share=0.01, max_share_per_file=None)  # by default
    limits = ("{}", "{max_share: 0.5}", "{max_share: null, max_share_per_file: 0.2}")
    keys = [key_parts(parse_spec(f"{SPEC}rejects: {rejects}\n"), None, {}) for rejects in limits]
    assert keys[0] == keys[1] == keys[2]


def test_exactly_the_share_that_is_allowed_is_taken(tmp_path: Path) -> None:
    """0.29 * 100 is less than 29 in floating point."""
    for bad, outcome in ((4, nullcontext()), (5, pytest.raises(TooManyRejectsError))):
        job = Job(tmp_path / str(bad), rows=100, max_share=0.29)
        for number in range(4):
            job.chunk(number, 25, (25, bad, 0, 0)[number])
        with outcome:
            job.check()


def test_rows_that_were_rejected_are_why_nothing_was_learned(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"note": 1}\n' * 3)
    (tmp_path / "dataset.yaml").write_text(
        "{name: a, source: {format: jsonl, path: rows.jsonl}, "
        "features: {note: {kind: text, tokenizer: sentencepiece, vocabulary: 9}}}"
    )
    with raises(TooManyRejectsError, "3 of 3 rows"):
        build(load_spec(tmp_path / "dataset.yaml"), str(tmp_path / "out"))


def test_rejects_of_a_chunk_are_bounded_as_they_are_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_chunk, "REJECTS", REJECTS._replace(most=5))
    for bad in (5, 6):
        (tmp_path / "a.jsonl").write_text('{"n": 1}\n' + '{"n": "x"}\n' * bad)
        (tmp_path / "a.yaml").write_text(SPEC + "rejects: {max_share: null}\nsplits: {train: 1}\n")
        with raises(UserError, "a.jsonl", "6", "limit of 5") if bad == 6 else nullcontext():
            build(load_spec(str(tmp_path / "a.yaml")), str(tmp_path / f"out{bad}"))
