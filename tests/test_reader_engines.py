"""The two engines give the same batches of every kind, and they look as `element_spec` says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.build import Published
from pipeline.reader import Dataset, Ragged, open_dataset
from pipeline.reader.input import Input
from pipeline.reader.specs import ArraySpec
from transforms.augment import ColorJitter, RandomFlip, RandomResizedCrop, RandomRotation90

LEVEL = 1.01 / 255  # what is scaled while it is read may differ by a level
OPTIONS: dict[str, dict[str, Any]] = {
    "as the spec says": {},
    "uint8 and masks": {"dtype": "uint8", "masks": True, "text_length": 5},
    "bfloat16 and ragged": {"dtype": "bfloat16", "text": "ragged"},
    "to the longest": {"text_length": "longest"},
    "turned and mirrored": {"augment": [RandomFlip(vertical=0.5), RandomRotation90(), ColorJitter(brightness=0.4)]},
    "scaled": {"augment": [RandomResizedCrop((7, 9)), RandomFlip()], "dtype": "uint8"},
}


@pytest.fixture(scope="module")
def dataset(every_kind: tuple[Path, Published]) -> Dataset:
    return open_dataset(every_kind[1].folder)


def arrays(batch: Any) -> dict[str, Any]:
    features, label = batch
    return {**features, "(label)": label}


def fits(value: Any, spec: ArraySpec) -> bool:
    if isinstance(value, Ragged):
        return spec.ragged and len(value.splits) - 1 == spec.shape[0]
    dtype = "bytes" if value.dtype == object else str(value.dtype)
    shape = [mine if known is None else known for mine, known in zip(value.shape, spec.shape, strict=True)]
    return dtype == spec.dtype and shape == list(value.shape)


def tolerance(name: str, description: Any, given: Input) -> float:
    """In units of what a batch holds."""
    scaled = any(isinstance(change, RandomResizedCrop) for change in given.source.request.augment.get(name, ()))
    if description["kind"] not in ("image", "image_sequence") or not (scaled or description["encoding"] == "original"):
        return 0
    if given.element_spec[0][name].dtype == "uint8":
        return 1
    return 255 * LEVEL * max(description["scale"])


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_both_engines_give_the_same(options: dict[str, Any], dataset: Dataset) -> None:
    given = dataset.training_input(batch_size=30, seed=2, epochs=1, with_key=True, **options)
    by_tensorflow = given.as_tf_data(engine="tensorflow").take(3).as_numpy_iterator()
    for mine, other in zip(given.as_numpy(), by_tensorflow, strict=False):
        specs, here, there = arrays(given.element_spec), arrays(mine), arrays(other)
        assert list(here) == list(there) == list(specs)
        for name, value in here.items():
            assert fits(value, specs[name]), (name, specs[name])
            if isinstance(value, Ragged):
                np.testing.assert_array_equal(value.values, there[name].values)
                np.testing.assert_array_equal(value.splits, there[name].row_splits)
                continue
            assert value.dtype == there[name].dtype
            allowed = tolerance(name, dataset.features.get(name, {"kind": ""}), given)
            if allowed:
                np.testing.assert_allclose(
                    value.astype(np.float64), there[name].astype(np.float64), rtol=0, atol=allowed, err_msg=name
                )
            else:
                np.testing.assert_array_equal(value, there[name], err_msg=name)
