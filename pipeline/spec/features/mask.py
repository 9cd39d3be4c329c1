"""Masks of an image: an index for each pixel, from images, or drawn from the shapes of objects."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PrivateAttr, Tag, model_validator

from recordmill.pipeline.errors import WrongValueError
from recordmill.pipeline.safe_text import cut
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.spec.features.category import ClassName, Classes, distinct
from recordmill.pipeline.spec.features.feature import Feature, feature_named
from recordmill.pipeline.spec.features.image import MAX_BYTES, Byte, Image
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.image import PixelOptions
from recordmill.transforms.contract.kinds.mask import MaskDescription, MaskOptions

Color = Annotated[
    Annotated[Byte, Tag("a level")] | Annotated[tuple[Byte, Byte, Byte], Tag("a colour")],
    Discriminator(lambda value: "a level" if isinstance(value, int) else "a colour"),
]
MaskClasses = Annotated[
    Annotated[Classes, Tag("names")] | Annotated[dict[Byte, ClassName], Tag("names by value")],
    Discriminator(lambda value: "names by value" if isinstance(value, dict) else "names"),
]
ENCODED_SHARE = {"png": 0.05, "raw": 1.0}  # estimated stored bytes per pixel
SIDES = ("size", "shorter_side", "fit")  # options of the image
