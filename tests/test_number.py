"""Numbers: the same bits in any batch, numbers near 0, and options that do not go together."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from recordmill.pipeline.build.worker.shard_report import counted_values
from recordmill.transforms.base.description import Decoding
from recordmill.transforms.base.graph import Context, Parts, Prepared, Statistics
from recordmill.transforms.engines.tensorflow_features import KINDS
from recordmill.transforms.images.image_facts import loss_lines
from recordmill.transforms.values.values_graph import prepare_numbers
from recordmill.transforms.values.values_spec import Number, Numbers
from recordmill.transforms.values.values_stored import TINY
from tests.messages import raises
from tests.running import BOTH_WAYS, Run

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False)
EDGES = [0.0, -0.0, 1.0, 0.1, -3.4028235e38, 3.4028235e38, 1.17549435e-38, 16777217.0]
NAN = float("nan")


def options(**given: Any) -> dict[str, Any]:
    return Number(kind="number", **given)


def prepared(values: Any, **given: Any) -> Prepared:
    return prepare_numbers(options(**given), tf.convert_to_tensor(values, tf.float32), Context())


def found(**statistics: Any) -> Statistics:
    defaults = {"mean": 0.0, "scale": 1.0, "minimum": 0.0, "range_scale": 1.0, "median": 0.0}
    return Statistics(**{name: tf.constant(value, tf.float64) for name, value in (defaults | statistics).items()})


def stored(values: Any, statistics: Mapping[str, Any] | None = None, **given: Any) -> Parts:
    return prepared(values, **given).store(found(**(statistics or {})))


def bits(values: Any) -> list[int]:
    return np.asarray(values, np.float32).view(np.uint32).tolist()


@BOTH_WAYS
def test_a_z_score_is_computed_in_float64(run: Run) -> None:
    statistics = {"mean": 0.1, "scale": 1 / 3}
    score = run(lambda values: stored(values, statistics)[""], tf.constant(EDGES, tf.float32))
    expected = ((np.array(EDGES, np.float32).astype(np.float64) - 0.1) * (1 / 3)).astype(np.float32)
    assert score.dtype == tf.float32
    assert bits(score) == bits(expected)


WAYS = [{}, {"normalize": "min_max"}, {"transform": "log1p"}, {"transform": "log", "clip": [1e-3, None]}]


@settings(max_examples=40)
@given(st.lists(FLOATS, min_size=1, max_size=40), FLOATS, st.floats(1e-3, 1e3), st.sampled_from(WAYS))
def test_a_number_does_not_depend_on_its_batch(
    values: list[float], mean: float, scale: float, given: dict[str, Any]
) -> None:
    statistics = {"mean": mean, "scale": scale, "minimum": mean, "range_scale": scale}
    together = stored(values, statistics, **given)[""]
    assert bits(together) == [bits(stored([value], statistics, **given)[""])[0] for value in values]


@BOTH_WAYS
def test_without_normalization_a_number_is_itself(run: Run) -> None:
    edges = [*EDGES, float("inf")]
    same = run(lambda values: stored(values, {"mean": 5.0}, normalize="none"), tf.constant(edges, tf.float32))
    assert bits(same[""]) == bits(edges)
    assert bits(KINDS["number"].features({}, same)[""]) == bits(edges)


LEAST = float(np.finfo(np.float32).smallest_normal)
FLUSHED = [1e-45, 8e-39, -8e-39, 0.9999 * LEAST]


@BOTH_WAYS
@pytest.mark.parametrize("given", [{"normalize": "none"}, {"optional": True}, {"clip": [-1, 1]}])
def test_numbers_below_float32s_normal_range_are_stored_as_0(run: Run, given: dict[str, Any]) -> None:
    found = run(lambda values: stored(values, **given)[""], tf.constant([*FLUSHED, LEAST, -LEAST], tf.float32))
    assert found.numpy().tolist() == [0, 0, 0, 0, LEAST, -LEAST]


@pytest.mark.parametrize("given", [{}, {"normalize": "min_max"}, {"quantiles": 4}, {"optional": True}])
def test_numbers_below_float32s_normal_range_count_as_0_in_statistics(given: dict[str, Any]) -> None:
    values = prepared([*FLUSHED, LEAST], **given).values
    assert values is not None
    assert values().numpy().tolist() == [0, 0, 0, 0, LEAST]


def test_numbers_that_are_taken_for_0_are_counted() -> None:
    lists = pa.array([[1e-39], [], [1.0, -1e-40]] + [[]] * 2)
    rows = pa.table({"a": pa.array([1e-45, -8e-39, 0, LEAST, NAN], pa.float32()), "b": lists})
    counted = counted_values({"a": options(), "b": Numbers(kind="numbers"), "c": options()}, rows)
    assert counted == {("losses", f"a {TINY}"): 2, ("losses", f"b {TINY}"): 2}
    (line,) = loss_lines({TINY: 2})
    assert "2 with values nearer to 0 than 1.2e-38" in line
    assert "scale them" in line


MISTAKES: list[Any] = [
    ({"clip": [1, 1]}, ("`clip`", "[low, high]")),
    ({"clip": [None, None]}, ("`clip`", "[low, high]")),
    ({"clip": [0, 1e39]}, ("clip.1", "float32", "1e+39")),
    ({"transform": "log"}, ("`log`", "`clip`", "above 0")),
    ({"transform": "log", "clip": [1e-40, None]}, ("1.175e-38", "1e-40")),
    ({"boundaries": [0, 1e-39]}, ("1.175e-38", "1e-39")),
    ({"optional": True, "impute": -1e-50}, ("1.175e-38", "-1e-50")),
    ({"transform": "log1p", "clip": [-1, None]}, ("`log1p`", "`clip`")),
    ({"transform": "log1p", "clip": [None, 9]}, ("`log1p`", "`clip`")),
    ({"quantiles": 4, "boundaries": [1]}, ("`quantiles`", "`boundaries`")),
    ({"quantiles": 4, "normalize": "min_max"}, ("`normalize`", "normalized")),
    ({"quantiles": 1}, ("equal to 2",)),
    ({"boundaries": [1, 1.00000001]}, ("float32",)),
    ({"boundaries": []}, ("at least 1",)),
    ({"indicator": True}, ("`indicator`",)),
    ({"impute": 0}, ("`impute`",)),
    ({"impute": "modus", "optional": True}, ("mean, median", "number", "'modus'")),
]
MISTAKES_OF_LISTS: list[Any] = [
    ({"length": 2, "max_length": 3}, ("`length`", "`max_length`", "exclude")),
    ({"length": 0}, ("length", "equal to 1")),
    ({"separator": ""}, ("separator", "1 character")),
    ({"impute": 0}, ("impute", "Extra")),
]


@pytest.mark.parametrize(
    ("kind", "given", "facts"),
    [*((Number, *each) for each in MISTAKES), *((Numbers, *each) for each in MISTAKES_OF_LISTS)],
)
def test_options_that_make_no_sense_are_told(kind: Any, given: dict[str, Any], facts: tuple[str, ...]) -> None:
    with raises(ValidationError, *facts):
        kind(kind=kind.__name__.lower(), **given)


@pytest.mark.parametrize(("normalize", "scale", "start"), [("z_score", 0.4, 0.2), ("min_max", 1.2, -0.3)])
def test_a_zero_is_shown_as_zero(normalize: str, scale: float, start: float) -> None:
    statistics = {"mean": 0.2, "variance": 0.16, "minimum": -0.3, "maximum": 0.9}
    described = Number(kind="number", normalize=normalize).describe(statistics)
    decoding = Decoding(None, statistics, Any)
    shown = [described.decode(np.float32((value - start) / scale), decoding) for value in (0, 1e-6)]
    assert shown == [0, pytest.approx(1e-6, rel=0.1)]
