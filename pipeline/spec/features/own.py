"""Tensors that the user's `preprocessing` function stores: no kind of the spec, but described as one."""

from typing import Any, Literal

from recordmill.pipeline.spec.features.base import Feature, tfds_scalar, tfds_sequence
from recordmill.pipeline.spec.features.raw import TFDS_TYPES
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.raw import OwnDescription


class Own(Feature):
    """A tensor that the user's function returned."""

    kind: Literal["own"] = "own"
    stored: Literal["bytes", "int64", "float32"]
    shape: tuple[int, ...] | None
    """A row's shape; None where rows have different lengths."""

    def raw_column(self) -> None:
        """Gives None: no source delivers it."""
        return

    def parts(self) -> tuple[str, ...]:
        """Names none: a tensor has no parts."""
        return ()

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes type and shape."""
        return OwnDescription(stored=self.stored, shape=self.shape)

    def tfds(self, description: Description) -> dict[str, Any]:
        """Gives a scalar, a tensor, or a sequence."""
        kind = TFDS_TYPES[self.stored]
        if self.shape is None:
            return tfds_sequence(kind)
        if not self.shape:
            return tfds_scalar(kind)
        dimensions = {"dimensions": [str(side) for side in self.shape]}
        return {
            "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
            "tensor": {"shape": dimensions, "dtype": kind, "encoding": "none"},
        }
