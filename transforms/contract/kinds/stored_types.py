"""The type of a stored part, and its description in TensorFlow Datasets' JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.redaction import cut

TFDS = "tensorflow_datasets.core.features"


@dataclass(frozen=True)
class Stored:
    """The type of a part: `bytes`, `int64` or `float32`, and the shape of a row's values; None for a list."""

    dtype: str
    shape: tuple[int, ...] | None = ()

    def __post_init__(self) -> None:
        """Refuses another type. Raises: DatasetError."""
        if self.dtype not in ("bytes", "int64", "float32"):
            shown = cut(repr(self.dtype), 50)
            raise DatasetError(f"a feature is stored as {shown} in dataset.json: copy the version again")


def tfds_stored(stored: Stored) -> dict[str, Any]:
    """Describes a stored part: a scalar, a tensor, or a sequence of scalars."""
    dtype = "string" if stored.dtype == "bytes" else stored.dtype
    scalar = {"pythonClassName": f"{TFDS}.scalar.Scalar", "tensor": {"shape": {}, "dtype": dtype, "encoding": "none"}}
    if stored.shape is None:
        return tfds_sequence(scalar)
    return tfds_tensor(dtype, stored.shape, "none") if stored.shape else scalar


def tfds_sequence(feature: dict[str, Any]) -> dict[str, Any]:
    """Describes any number of a feature."""
    return {
        "pythonClassName": f"{TFDS}.sequence_feature.Sequence",
        "sequence": {"feature": feature, "length": "-1"},
    }


def tfds_tensor(dtype: str, shape: Sequence[int], encoding: str) -> dict[str, Any]:
    """Describes a tensor; -1 is a side that varies."""
    tensor = {"shape": tfds_shape(shape), "dtype": dtype, "encoding": encoding}
    return {"pythonClassName": f"{TFDS}.tensor_feature.Tensor", "tensor": tensor}


def tfds_shape(shape: Sequence[int]) -> dict[str, list[str]]:
    """Describes a shape."""
    return {"dimensions": [str(side) for side in shape]}
