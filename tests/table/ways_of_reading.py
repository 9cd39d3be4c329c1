"""Ways of reading: each engine, form and other reader gives the values that the cases state."""

import os
import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from tests.table.case import ABSENT, ROWS, SPLITS
from tests.table.reading import by_key, key_of, records, wrong_descriptions, wrong_records, wrong_rejects, wrong_values
from tests.table.ways import Found, World, judged, of_all, way
from tests.table.world import Table
from tests.test_frameworks import answer, start


@way("stored as tf.train.Example")
def stored(world: World) -> Found:
    """TensorFlow's own classes read the records of every case; rejects and dataset.json are as the cases say."""

    def wrong(table: Table) -> Iterator[str]:
        folder = table.published.folder
        yield from wrong_records(table.cases, records(folder))
        yield from wrong_rejects(table.cases, folder)
        yield from wrong_descriptions(table.cases, table.dataset.features)

    return of_all(world, wrong)


def _evaluated(table: Table, batches: Callable[[Any], Any], splits: Iterable[str] = SPLITS) -> Iterator[str]:
    for split in splits:
        given = table.dataset.evaluation_input(split, batch_size=6, with_key=True)
        yield from wrong_values(table.cases, by_key(batches(given), table.label), padded=True)


@way("read as NumPy arrays")
def as_numpy(world: World) -> Found:
    """Batches of whole splits, padded."""
    return of_all(world, lambda table: _evaluated(table, lambda given: given.as_numpy()))


@way("read by tf.data")
def as_tf_data(world: World) -> Found:
    """Batches handed over to TensorFlow."""
    given = lambda given: given.as_tf_data().as_numpy_iterator()  # noqa: E731
    return of_all(world, lambda table: _evaluated(table, given, _traced(world)))


@way("read by tf.data's own operations (`native=True`)")
def as_native(world: World) -> Found:
    """Batches made by TensorFlow's graph alone."""
    native = lambda given: given.as_tf_data(native=True).as_numpy_iterator()  # noqa: E731
    return of_all(world, lambda table: _evaluated(table, native, _traced(world)))


def _traced(world: World) -> Iterable[str]:
    """The splits that TensorFlow reads: each costs a graph of all features."""
    return SPLITS if world.whole else ["train"]


@way("a row by its number or key")
def row(world: World) -> Found:
    """Single rows, without those of a batch."""

    def wrong(table: Table) -> Iterator[str]:
        rejected = {key for case in table.cases.values() for key in case.rejects()}
        for split, rows in SPLITS.items():
            source = table.dataset.source(split, with_key=True)
            for key in (key for key in ROWS[rows] if key not in rejected):
                given = source[source.number_of(key)]
                features = given if table.label is None else {**given[0], table.label: given[1]}
                yield from wrong_values(table.cases, {key: features}, padded=True)  # to `max_length`

    return of_all(world, wrong)


@way("shuffled for training, two epochs")
def training(world: World) -> Found:
    """Each epoch holds each row of the split once, with its values."""

    def wrong(table: Table) -> Iterator[str]:
        count = table.published.manifest.splits["train"].records
        options = {"batch_size": 2 - count % 2, "with_key": True, "epochs": 2, "seed": 3}
        batches = list(table.dataset.training_input("train", **options).as_numpy())
        for epoch in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
            rows = by_key(epoch, table.label)
            yield from wrong_values(table.cases, rows, padded=True)
            if len(rows) != count:
                yield f"an epoch of {count} records holds {sorted(rows)}"

    return of_all(world, wrong)


@way("told by its step (`rows`, `steps_of`), and left out of a training (`without`)")
def of_step(world: World) -> Found:
    """A step has the keys of its batch; without the first row, all others keep their values, each once an epoch."""

    def wrong(table: Table) -> Iterator[str]:
        options = {"batch_size": 1, "with_key": True, "seed": 3}
        given = table.dataset.training_input("train", **options)
        rows = {step: given.rows(step)[0] for step in range(len(given))}
        told = {step: [row.key] for step, row in rows.items()}
        read = {step: [*by_key([batch], table.label)] for step, batch in enumerate(given.as_numpy())}
        if told != {step: [key.partition("#")[0] for key in keys] for step, keys in read.items()}:
            yield f"steps have the rows {read}, and are said to have {told}"
        if (steps := given.steps_of(rows[0].key)) != [step for step, keys in told.items() if rows[0].key in keys]:
            yield f"{rows[0].key} is said to be in the steps {steps} of {told}"
        if len({row.key for row in rows.values()}) == 1:
            return
        left = table.dataset.training_input("train", without=[rows[0].key], **options)
        found = by_key(left.as_numpy(), table.label)
        yield from wrong_values(table.cases, found, padded=True)
        if sorted(found) != sorted(key for [key] in read.values() if key.partition("#")[0] != rows[0].key):
            yield f"without {rows[0].key} an epoch holds {sorted(found)}"

    return of_all(world, wrong)


NO_IDS = dict.fromkeys(
    ["image", "image_sequence", "mask", "masks", "boxes", "keypoints", "category", "categories", "number", "numbers",
     "array", "raw"], "is no list of a text's ids",
)  # fmt: skip


@way("as rows of their own lengths (`text='ragged'`)", absent=NO_IDS)
def ragged(world: World) -> Found:
    """Texts without `max_length` are neither cut nor padded; several of a row are one list, as they are stored."""

    def wrong(table: Table) -> Iterator[str]:
        cut = {name for name, case in table.cases.items() if case.feature.get("max_length") is not None}
        cases = {name: replace(case, read=case.in_records()) for name, case in table.cases.items()
                 if case.kind not in NO_IDS and not {name, case.feature.get("text")} & cut}  # fmt: skip
        if cases:
            options = {"features": list(cases), "with_key": True, "text": "ragged"}
            given = table.dataset.evaluation_input("train", batch_size=2, **options)
            yield from wrong_values(cases, by_key(given.as_numpy()))

    return of_all(world, wrong)


@way("read by tf.Transform's own classes")
def tf_transform(world: World) -> Found:
    """`TFTransformOutput` names each stored tensor, the range and the names of ids, and transforms raw rows."""

    def wrong(table: Table) -> Iterator[str]:
        output = tft.TFTransformOutput(table.published.folder)
        spec = output.transformed_feature_spec()
        rows = ((key, next(_flat(tf.io.parse_example([example], spec)))) for key, example in _examples(output))
        found = {key_of(held, key): held for key, held in rows}
        yield from wrong_records(table.cases, found)
        yield from _wrong_domains(output, table, found)

    found = of_all(world, wrong)
    if world.whole:
        cases = {name: case for name, case in world.table().cases.items() if case.kind in PLAIN}
        plain = Table(world.folder / "plain", cases)
        output = tft.TFTransformOutput(plain.published.folder)
        found |= judged(cases, _wrong_transformed(output, plain))
    return found


PLAIN = ("category", "categories", "number", "numbers", "raw")


def _flat(tensors: Any) -> Iterator[dict[str, Any]]:
    """Yields the rows of tensors, each value a flat array."""
    dense = {name: tf.sparse.to_dense(each) if isinstance(each, tf.SparseTensor) else each
             for name, each in tensors.items()}  # fmt: skip
    for row in range(next(iter(dense.values())).shape[0]):
        chosen = {name: each[row : row + 1] for name, each in dense.items()}
        yield {name: np.reshape(getattr(each, "flat_values", each).numpy(), -1) for name, each in chosen.items()}


def _wrong_domains(output: Any, table: Table, found: Any) -> Iterator[str]:
    for name in output.transformed_domains():
        ids = np.concatenate([row[name] for row in found.values()])
        if not 0 <= ids.min() <= ids.max() < output.num_buckets_for_transformed_feature(name):
            yield f"{name}: {ids} is beyond its domain"
    for name, feature in table.published.manifest.features.items():
        if "vocabulary" in feature:
            lines = Path(table.published.folder, feature["vocabulary"]).read_bytes().splitlines()
            if output.vocabulary_by_name(name) != lines:
                yield f"{name}: its vocabulary is {output.vocabulary_by_name(name)}"


def _wrong_transformed(output: Any, table: Table) -> Iterator[str]:
    """Yields what the graph makes wrongly of raw rows, which TFX's `ExampleGen` gives as Examples."""
    cases = {name: case for name, case in table.cases.items() if case.raw
             and ABSENT not in case.raw and not {"separator", "parse"} & case.feature.keys()}  # fmt: skip
    spec = {name: of for name, of in output.raw_feature_spec().items() if name in cases}
    examples = []
    for row in range(len(ROWS)):
        made = tf.train.Example()
        for name, of in spec.items():
            given = cases[name].raw[row]
            values = [each.encode() if isinstance(each, str) else each for each in np.ravel(given).tolist()]
            kinds = {tf.string: "bytes_list", tf.int64: "int64_list", tf.float32: "float_list"}
            getattr(made.features.feature[name], kinds[of.dtype]).value.extend(values)
        examples.append(made.SerializeToString())
    rows = _flat(output.transform_raw_features(tf.io.parse_example(examples, spec)))
    yield from wrong_records(cases, dict(zip(ROWS, rows, strict=True)))


def _examples(output: Any) -> Iterator[tuple[bytes, bytes]]:
    for file in sorted(Path(output.transform_savedmodel_dir).parent.glob("*.tfrecord-*")):
        for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            yield features["key"].bytes_list.value[0], record


@way("read as PyTorch's tensors", mark="frameworks")
def as_torch(world: World) -> Found:
    """Batches where there is no TensorFlow."""
    return _by_framework(world, "torch")


@way("read as JAX's arrays", mark="frameworks", absent={"raw": "JAX has no strings"})
def as_jax(world: World) -> Found:
    """Batches where there is no TensorFlow, with `jax_enable_x64`."""
    return _by_framework(world, "jax")


def _by_framework(world: World, name: str) -> Found:
    interpreter = os.environ.get("RECORDMILL_FRAMEWORKS")
    if not interpreter:
        pytest.skip("RECORDMILL_FRAMEWORKS names no Python with torch and jax: make test-frameworks")
    table, to = world.table(), world.folder / f"{name}.pickle"
    run = start(interpreter, "values", table.published.folder, name, str(to), JAX_ENABLE_X64="true")
    answer(run)
    return judged(table.cases, wrong_values(table.cases, pickle.loads(to.read_bytes()), padded=True))  # noqa: S301
