"""Which positions each host reads at each step, and what each iteration gives."""

import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill import open_dataset
from recordmill.pipeline.dataset.manifest import DatasetError
from recordmill.pipeline.reader.iteration import step_of
from recordmill.pipeline.reader.options import ranges
from recordmill.pipeline.reader.order import Passes, Steps
from tests.hand_made import FEATURES, write_dataset
from tests.messages import raises


@given(st.integers(0, 60), st.integers(1, 7), st.integers(1, 5), st.booleans(), st.sampled_from([0, 60]))
def test_hosts_share_the_positions(records: int, batch: int, hosts: int, drop: bool, lanes: int) -> None:
    steps = [Steps(records, batch, host, hosts, drop, lanes) for host in range(hosts)]
    read = [one.positions(step).tolist() for step in range(steps[0].of_epoch) for one in steps]
    whole = records // (batch * hosts) * batch * hosts if drop else records
    given = [position for part in read for position in part]
    assert (sorted(given) if lanes else given) == list(range(whole))
    assert not lanes or all(position % hosts == number % hosts for number, part in enumerate(read) for position in part)
    assert all(len(part) == batch for part in read) or not drop
    assert len({one.of_epoch for one in steps}) == 1


def test_fewer_hosts_of_larger_batches_read_the_same() -> None:
    def global_batch(step: int, batch: int, hosts: int) -> list[int]:
        return [p for host in range(hosts) for p in Steps(100, batch, host, hosts).positions(step).tolist()]

    assert [global_batch(step, 2, 6) for step in range(8)] == [global_batch(step, 4, 3) for step in range(8)]
    all_of_them = Steps(3, 10**15, drop_remainder=False)  # takes memory for these alone
    assert all_of_them.positions(0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("drop", "step", "records"), [(True, 0, 0), (True, 7, 21), (True, 3, 9), (False, 4, 10), (False, 5, 13)]
)
def test_records_are_counted_over_epochs(drop: bool, step: int, records: int) -> None:
    assert Steps(10, 3, drop_remainder=drop).consumed(step) == records
    assert Steps(0, 3, drop_remainder=drop).consumed(step) == 0


def test_each_iteration_is_the_next_epoch_and_a_resumed_one_its_rest() -> None:
    passes = Passes(4, None, 0)
    assert [list(passes.begin()) for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    passes.set_epoch(1)
    assert list(passes.begin()) == [4, 5, 6, 7]
    passes = Passes(4, None, 6)
    assert [list(passes.begin()) for _ in range(2)] == [[6, 7], [8, 9, 10, 11]]
    passes.set_epoch(1)
    assert list(passes.begin()) == [6, 7]
    passes.set_epoch(0)  # an epoch that was over before the input began is not given again
    assert list(passes.begin()) == [6, 7]


@pytest.mark.parametrize(
    ("epochs", "start", "steps"), [(2, 0, [0, 1, 2, 3, 4, 5]), (2, 4, [4, 5]), (2, 6, []), (2, 9, []), (-1, 7, [7, 8])]
)
def test_epochs_in_one_iteration(epochs: int, start: int, steps: list[int]) -> None:
    passes = Passes(3, epochs, start)
    for _ in range(2):
        assert list(islice(passes.begin(), 2 if epochs < 0 else None)) == steps
    assert passes.steps == (None if epochs < 0 else len(steps))


def test_more_epochs_than_a_range_counts_are_as_good_as_no_end() -> None:
    assert list(islice(Passes(3, 10**20, 4).begin(), 2)) == [4, 5]
    assert Passes(3, 10**20, 4).steps == sys.maxsize - 4


@pytest.mark.parametrize("epochs", [None, 3, -1])
def test_no_steps_give_nothing(epochs: int | None) -> None:
    passes = Passes(0, epochs, 0)
    assert (list(passes.begin()), passes.steps) == ([], 0)


SPLITS = {"train": 10, "test": 3, "empty": 0}


@pytest.mark.parametrize(("written", "found"), [
    ("train", [("train", 0, 10)]),
    ("train[:80%]", [("train", 0, 8)]),
    ("train[80%:]", [("train", 8, 10)]),
    ("train[25%:75%]", [("train", 2, 8)]),
    ("train[-2:]", [("train", 8, 10)]),
    ("train[-20%:-1]", [("train", 8, 9)]),
    ("train[3:5]+test", [("train", 3, 5), ("test", 0, 3)]),
    ("train[4:] + train[:4]", [("train", 4, 10), ("train", 0, 4)]),
    ("train[5:100]", [("train", 5, 10)]),
    ("train[7:3]", [("train", 7, 7)]),
    ("train[:]", [("train", 0, 10)]),
    ("empty[:50%]", [("empty", 0, 0)]),
])  # fmt: skip
def test_slices_are_those_of_tfds(written: str, found: list[tuple[str, int, int]]) -> None:
    assert ranges(written, SPLITS) == found


@given(st.integers(0, 500), st.integers(0, 100))
def test_shares_miss_nothing(size: int, share: int) -> None:
    (_, first, middle), (_, again, end) = ranges(f"a[:{share}%]+a[{share}%:]", {"a": size})
    assert (first, middle, end) == (0, again, size)


@pytest.mark.parametrize(("written", "facts"), [
    ("trian", ("split 'trian'", "`train`", "train, test, empty")),
    ("train[", ("at 'train['", "train[100:200]")),
    ("train[5]", ("at 'train[5]'", "train[100:200]")),
    ("", ("at ''", "train[100:200]")),
    ("train++test", ("'train++test'", "at ''")),
    ("train[:120%]", ("'train[:120%]'", "-100% to 100%")),
])  # fmt: skip
def test_wrong_splits_are_refused(written: str, facts: tuple[str, ...]) -> None:
    with raises(DatasetError, *facts):
        ranges(written, SPLITS)


FACTS = {"dataset": "a", "version": "v1", "global_batch_size": 8}
STATE = {"format": 1, **FACTS, "step": 12, "epoch": 2, "records": 96}


@pytest.mark.parametrize(("change", "facts"), [
    ({"version": "v2"}, ("version: 'v2'", "'v1'", "open_dataset(PATH, VERSION)")),
    ({"global_batch_size": 16}, ("global batch size: 16", "8", "batch_size times")),
    ({"format": 2}, ("format 2", "1", "upgrade")),
    ({"step": None}, ("None", "`state()`")),
    ({"step": -1}, ("-1", "`state()`")),
])  # fmt: skip
def test_another_state_is_refused(change: dict[str, object], facts: tuple[str, ...]) -> None:
    assert step_of(STATE, FACTS) == 12
    with raises(DatasetError, *facts):
        step_of({**STATE, **change}, FACTS)
    for state in (None, 12, {}, "12"):
        with raises(DatasetError, repr(state), "`state()`"):
            step_of(state, FACTS)


def test_a_state_of_another_version_has_the_remedy(tmp_path: Path) -> None:
    folders = [write_dataset(tmp_path / "out", {"count": FEATURES["count"]}, None, name) for name in ("v1", "v2")]
    old, new = (open_dataset(tmp_path / "out", name).training_input(batch_size=2, seed=1) for name in ("v1", "v2"))
    state = old.state(step=3)
    with raises(DatasetError, f"open_dataset('{tmp_path}/out', 'v1')"):
        new.resume(state)
    shutil.rmtree(folders[0])
    with raises(DatasetError, f"{tmp_path}/out", "`recordmill versions prune`", "set_epoch(state['epoch'])"):
        new.resume(state)
    copied = shutil.copytree(folders[1], tmp_path / "copied")
    with raises(DatasetError, "open_dataset(PATH, VERSION)"):
        open_dataset(copied).training_input(batch_size=2, seed=1).resume(state)
