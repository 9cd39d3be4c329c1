"""The display of a build, from its counters: on a terminal, in a log, and quiet."""

import io
import itertools
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recordmill.pipeline.build.context.reports import Progress
from recordmill.pipeline.cli.screen import Screen
from recordmill.pipeline.cli.session import LOOKING, Display, State
from recordmill.pipeline.cli.show import print_published
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Split
from recordmill.pipeline.facts.version import learned_from_rejects
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.forked import wait_until
from tests.messages import assert_names

# seconds, counters, whether the analysis is done; the view: 100 rows are expected, 110 are found
LIFE = [
    (0, {}, False, ("reading", 0.0, "0 records, 0/s, 0 rejected")),
    (1, {"read": 20}, False, ("reading", 0.2, "20 records, 20/s, 0 rejected, 0:09 left")),
    (2, {"read": 50, "refused": 10, "chunks": 1}, False,
     ("reading", 0.5, "50 records, 25/s, 10 rejected, 0:05 left")),
    (10, {"read": 110, "refused": 10, "chunks": 2}, False, ("analyzing", None, "110 records, 10 rejected")),
    (11, {"read": 110, "refused": 10, "chunks": 2}, True,
     ("building shards", 0.0, "0 records, 0/s, 10 rejected, 0:09 left")),
    (12, {"read": 110, "refused": 10, "chunks": 2, "written": 38, "dropped": 2}, True,
     ("building shards", 0.4, "40 records, 40/s, 12 rejected, 0:04 left")),
    (100, {"read": 110, "refused": 10, "chunks": 2, "written": 95, "dropped": 5}, True,
     ("publishing", None, "110 records, 15 rejected")),
]  # fmt: skip


# a runner that shuffles rows reads them twice
LOOKED = {"look_read": 90, "look_refused": 10, "look_chunks": 2}
LIFE_WITH_LOOK = [
    (0, {"look_read": 0}, False, (LOOKING, 0.0, "0 records, 0/s, 0 rejected")),
    (1, {"look_read": 30, "look_refused": 3}, False,
     (LOOKING, 0.3, "30 records, 30/s, 3 rejected, 0:09 left")),
    (3, LOOKED, False, ("analyzing", None, "90 records, 10 rejected")),
    (4, LOOKED, True, ("reading", 0.0, "0 records, 0/s, 0 rejected, 0:08 left")),
    (5, {**LOOKED, "read": 50, "chunks": 1}, True, ("reading", 0.5, "50 records, 50/s, 0 rejected, 0:05 left")),
    (9, {**LOOKED, "read": 90, "refused": 10, "chunks": 2, "written": 40}, True,
     ("building shards", 0.5, "40 records, 0/s, 10 rejected, 0:02 left")),
]  # fmt: skip


@pytest.mark.parametrize("life", [LIFE, LIFE_WITH_LOOK], ids=["in one reading", "with a look"])
def test_the_life_of_a_build(life: list[tuple[int, dict[str, int], bool, tuple[str, float | None, str]]]) -> None:
    state = State(0.0, rows=100, chunks=2)
    for now, counts, analyzed, (stage, share, details) in life:
        view = state.view(counts, analyzed, float(now))
        assert (view.stage, view.text()) == (stage, details)
        assert view.share == (share if share is None else pytest.approx(share))


def test_the_rate_is_that_of_the_last_seconds() -> None:
    state = State(0.0, rows=10_000, chunks=1)
    rates = [state.view({"read": read}, False, float(now)).details.split(", ")[1]
             for now, read in enumerate([0, 1000, 2000, 2000, 2000, 2000, 2000])]  # fmt: skip
    assert rates == ["0/s", "1,000/s", "1,000/s", "667/s", "333/s", "0/s", "0/s"]


def planned_in(folder: Path) -> Any:
    return SimpleNamespace(progress=LocalStore(str(folder / "progress")))


def watch(folder: Path, console: Screen, until: threading.Event) -> None:
    """Looks every hundredth of a second, while the clock goes on by 0.3 s at each look."""
    ticks = itertools.count()
    for name in ("progress", "reports"):
        (folder / name).mkdir()
    step = Progress(LocalStore(str(folder / "progress")), "chunk")
    step.add(read=30)
    with Display(console, lambda: next(ticks) * 0.3, look_seconds=0.01) as display:
        display.start(SimpleNamespace(rows=100, chunks=[1], notes=["2 files are [no] image"]), planned_in(folder))
        until.wait(240)


class Seen(io.StringIO):
    """A screen that tells when a text has come up."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.seen = text, threading.Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.text in self.getvalue():
            self.seen.set()
        return written


def test_without_a_terminal_a_line_now_and_then(tmp_path: Path) -> None:
    screen = Seen("reading: 30%, 30 records, ")
    watch(tmp_path, Screen(file=screen, width=40), screen.seen)
    assert screen.seen.is_set(), screen.getvalue()
    assert "note: 2 files are [no] image\n" in screen.getvalue()
    assert "\x1b" not in screen.getvalue()


def test_a_log_says_what_publishing_does_and_repeats_no_line(tmp_path: Path) -> None:
    for name in ("progress", "reports"):
        (tmp_path / name).mkdir()
    step = Progress(LocalStore(str(tmp_path / "progress")), "chunk")
    step.add(read=30, written=30, chunks=1, analyzed=1)
    step.write()
    screen, ticks, looks = io.StringIO(), itertools.count(), threading.Event()

    def clock() -> float:
        number = next(ticks)
        if number > 60:
            looks.set()
        return number * 0.7

    with Display(Screen(file=screen, width=80), clock, look_seconds=0.001) as display:
        display.start(SimpleNamespace(rows=30, chunks=[1], notes=[]), planned_in(tmp_path))
        display.show_stage("saving the serving model")
        assert looks.wait(240)
    assert screen.getvalue().splitlines()[-1] == "publishing: saving the serving model"
    assert len(set(screen.getvalue().splitlines())) == len(screen.getvalue().splitlines())


def test_on_a_terminal_one_line_that_is_cleared(tmp_path: Path) -> None:
    screen = Seen("30 records")
    watch(tmp_path, Screen(file=screen, force_terminal=True, width=120), screen.seen)
    assert screen.seen.is_set(), screen.getvalue()
    assert screen.getvalue().endswith("\x1b[2K")


def test_the_live_line_says_what_is_loading(tmp_path: Path) -> None:
    screen = io.StringIO()
    with Display(Screen(file=screen, force_terminal=True, width=100), look_seconds=0.01) as display:
        display.show_stage("loading Apache Beam and TensorFlow")
        wait_until(lambda: "loading Apache Beam and TensorFlow" in screen.getvalue())


def test_a_note_is_printed_once() -> None:
    screen = io.StringIO()
    display = Display(Screen(file=screen))
    for text in ("waiting", "waiting", "going on"):
        display.note(text)
    assert screen.getvalue().splitlines() == ["note: waiting", "note: going on"]


def published(rejects: dict[str, int]) -> Manifest:
    shards = tuple(Shard(f"s{place}", 3 << 19, 700, "00" * 32, f"i{place}") for place in range(2))
    return Manifest(
        "emoji", "v1", "00ff" * 16, None, {}, {"train": Split(shards), "test": Split(shards[:1])},
        rows={"read": 2107}, rejects={"by_reason": rejects},
    )  # fmt: skip


def test_what_was_published_is_summed_up() -> None:
    screen = io.StringIO()
    console = Screen(file=screen, width=60)
    manifest = published({"missing_value": 5, "wrong_type": 2})
    print_published(console, Published("/out/[red]/versions/v1", manifest, is_new=True), 12.34)
    first, train, test, rejected, missing, wrong, last = screen.getvalue().splitlines()
    assert_names(first, "emoji v1", "12.3 s", "4.7 MB")
    assert_names(train, "  train             1,400 ", "2 shards")
    assert_names(test, "  test                700 ", "1 shard")
    assert_names(rejected, "  rejected              7 ", "2,107 rows")
    assert [missing, wrong] == ["    missing_value       5", "    wrong_type          2"]
    assert_names(last, "/out/[red]/versions/v1")


@pytest.mark.parametrize(
    ("rejects", "facts"),
    [
        ({"in_statistics": 5, "learned_from": {"x": 4, "y": 5, "z": 4}}, [("x, z ", " 4 "), ("y ", " 5 ")]),
        ({"in_statistics": 1, "learned_from": {f"x{n}": 1 for n in range(12)}}, [("x9 and 2 more", " 1 ")]),
        ({"in_statistics": 3}, [(" 3 ",)]),
        ({"in_statistics": 0, "learned_from": {}}, []),
    ],
)
def test_rejects_that_features_learned_from_are_said(rejects: dict[str, Any], facts: list[tuple[str, ...]]) -> None:
    manifest = replace(published({}), rejects={"by_reason": {}, **rejects})
    for line, told in zip(learned_from_rejects(manifest), facts, strict=True):
        assert_names(line, *told, "`analysis: refresh`")


@pytest.mark.parametrize(("went_live", "fact"), [(False, "changed"), (True, "live again")])
def test_nothing_new_is_one_line(went_live: bool, fact: str) -> None:
    screen = io.StringIO()
    outcome = Published("/out/[red]/versions/v1", published({}), is_new=False, went_live=went_live)
    print_published(Screen(file=screen, width=40), outcome, 1.0)
    (line,) = screen.getvalue().splitlines()
    assert_names(line, fact, " v1", "/out/[red]/versions/v1")
