"""The two engines give the same batches of every kind, and they look as `element_spec` says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, Ragged, open_dataset
from recordmill.pipeline.build.driver import Published
from recordmill.pipeline.reader.input import Input
from recordmill.pipeline.reader.options.element_spec import ArraySpec
from recordmill.transforms.contract.augment import ColorJitter, RandomFlip, RandomResizedCrop, RandomRotation90

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


def tolerance(name: str, given: Input, dtype: Any) -> float:
    """A level of 255 wherever pixels are scaled, and another one where colours or a crop follow."""
    request = given.source.request
    description, changes = request.features.get(name, {}), request.augment.get(name, ())
    scaled = [isinstance(change, RandomResizedCrop) for change in changes]
    levels = 1 + len(changes) if description.get("encoding") == "original" else sum(scaled)
    level = 1.0 if dtype == np.uint8 else max(description.get("scale", [0]))
    rounding = 2.0**-7 if dtype == "bfloat16" and levels else 0.0
    return levels * level * 1.001 + rounding


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_both_engines_give_the_same(options: dict[str, Any], dataset: Dataset) -> None:
    given = dataset.training_input(batch_size=30, seed=2, epochs=1, with_key=True, **options)
    for mine, other in zip(given.as_numpy(), given.as_tf_data(engine="tensorflow").take(3), strict=False):
        specs, here, there = arrays(given.element_spec), arrays(mine), arrays(other)
        assert list(here) == list(there) == list(specs)
        for name, value in here.items():
            assert fits(value, specs[name]), (name, specs[name])
            if isinstance(value, Ragged):
                np.testing.assert_array_equal(value.values, there[name].values)
                np.testing.assert_array_equal(value.splits, there[name].row_splits)
                continue
            expected = there[name].numpy()
            assert value.dtype == expected.dtype
            allowed = tolerance(name, given, value.dtype)
            if not allowed:
                np.testing.assert_array_equal(value, expected, err_msg=name)
                continue
            difference = np.abs(value.astype(np.float64) - expected.astype(np.float64)).max()
            assert difference <= allowed, name
