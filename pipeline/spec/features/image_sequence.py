"""Several images a row, such as a video's frames or views of one thing, all scaled to one size."""

from typing import Any, Literal

from pydantic import model_validator

from recordmill.pipeline.sources.columns import Column, ColumnType
from recordmill.pipeline.spec.features.base import tfds_sequence
from recordmill.pipeline.spec.features.image import Image, Sides
from recordmill.pipeline.spec.features.lists import ListFeature
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.image import ImageSequenceDescription, ImageSequenceOptions


class ImageSequence(Image, ListFeature):
    """Any number of images a row; each has an image's options."""

    kind: Literal["image_sequence"]  # type: ignore[assignment]
    size: Sides
    """Height and width in pixels of every image; one number is both."""
    fit: Literal["pad", "crop", "stretch"] = "pad"
    """pad: the whole image, centred on the background; crop: the centre that fills the size; stretch: both sides
    scaled on their own."""
    store: Literal["auto", "jpeg", "png", "raw"] = "auto"
    """auto: JPEG for JPEG sources, PNG otherwise; raw: uint8 pixels."""

    @model_validator(mode="before")
    @classmethod
    def _no_size(cls, value: Any) -> Any:
        """Leaves `fit` as it is: there is always a size."""
        return value

    def raw_column(self) -> Column:
        """Gives a column of lists of references to images, which may be empty."""
        return self.list_column(ColumnType.IMAGE)

    def options(self, *, is_label: bool = False) -> ImageSequenceOptions:
        """Gives what the graph and the workers need."""
        return self._options(ImageSequenceOptions, measured=self.normalize == "dataset")

    def describe(self, statistics: dict[str, Any]) -> Description:
        """Describes every image as an image's, and how many there are."""
        pixels = self.pixels(statistics)
        return ImageSequenceDescription(**pixels, length=self.read_length, max_length=self.max_length)

    def tfds(self, description: Description) -> dict[str, Any]:
        """Gives a sequence of images, or of uint8 tensors."""
        return tfds_sequence(super().tfds(description))
