"""Images: decoded, oriented by EXIF, brought to one size, stored encoded; normalized when they are read."""

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.columns import ColumnType
from pipeline.kinds.base import Description, Feature

Byte = Annotated[int, Field(ge=0, le=255, strict=True)]
Side = Annotated[int, Field(ge=1, le=16_384, strict=True)]


class Image(Feature):
    """A picture of one size."""

    kind: Literal["image"]
    size: tuple[Side, Side]
    """Height and width in pixels."""
    channels: Literal[1, 3] = 3
    """3: RGB; 1: grey."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """pad: the whole picture, centred on the background; crop: the centre that fills the size; stretch: both sides
    scaled on their own. Area averaging when shrinking, bilinear when enlarging."""
    store: Literal["auto", "jpeg", "png", "raw"] = "auto"
    """auto: JPEG for JPEG sources, PNG otherwise; raw: uint8 pixels."""
    quality: int = Field(default=95, ge=1, le=100, strict=True)
    """JPEG quality."""
    normalize: Literal["zero_one", "minus_one_one", "dataset", "none"] = "zero_one"
    """zero_one: 0..1; minus_one_one: -1..1; dataset: mean 0 and variance 1 a channel over the train split;
    none: uint8, untouched."""
    background: tuple[Byte, Byte, Byte] = (255, 255, 255)
    """The colour behind transparent pixels and around a padded picture, as RGB."""
    max_pixels: int = Field(default=64_000_000, ge=1, strict=True)
    """A picture whose header states more is rejected before it is decoded."""

    def column_type(self) -> ColumnType:
        """A path inside the source."""
        return ColumnType.PATH

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Shape, encoding and the pixels' normalization: `(pixel - offset) * scale`, a channel each."""
        offset, scale = self._normalization(statistics)
        return {
            "kind": self.kind,
            "stored": "bytes",
            "encoding": self.store,
            "shape": [*self.size, self.channels],
            "dtype": "uint8" if self.normalize == "none" else "float32",
            "offset": offset,
            "scale": scale,
        }

    def _normalization(self, statistics: dict[str, Any]) -> tuple[list[float], list[float]]:
        if self.normalize == "dataset":
            deviations = [math.sqrt(variance) for variance in statistics["variance"]]
            return statistics["mean"], [1 / deviation if deviation else 1.0 for deviation in deviations]
        offset, scale = {"zero_one": (0.0, 1 / 255), "minus_one_one": (127.5, 1 / 127.5), "none": (0.0, 1.0)}[
            self.normalize
        ]
        return [offset] * self.channels, [scale] * self.channels

    def tfds(self, description: Description) -> dict[str, Any]:
        """An `Image`, or a uint8 `Tensor` in bytes where the pixels are stored raw."""
        height, width, channels = description["shape"]
        dimensions = {"dimensions": [str(height), str(width), str(channels)]}
        if self.store == "raw":
            return {
                "pythonClassName": "tensorflow_datasets.core.features.tensor_feature.Tensor",
                "tensor": {"shape": dimensions, "dtype": "uint8", "encoding": "bytes"},
            }
        return {
            "pythonClassName": "tensorflow_datasets.core.features.image_feature.Image",
            "image": {
                "shape": dimensions,
                "dtype": "uint8",
                "encodingFormat": "jpeg" if self.store == "jpeg" else "png",
            },
        }
