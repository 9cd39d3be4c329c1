"""The options of each kind of feature, without TensorFlow."""

from typing import Annotated

from pydantic import Field

from recordmill.pipeline.spec.features.array import Array
from recordmill.pipeline.spec.features.boxes import Boxes
from recordmill.pipeline.spec.features.category import Categories, Category
from recordmill.pipeline.spec.features.chat import Chat
from recordmill.pipeline.spec.features.image import Image, ImageSequence
from recordmill.pipeline.spec.features.keypoints import Keypoints
from recordmill.pipeline.spec.features.mask import Mask, Masks
from recordmill.pipeline.spec.features.number import Number, Numbers
from recordmill.pipeline.spec.features.pair import Pair
from recordmill.pipeline.spec.features.raw import Raw
from recordmill.pipeline.spec.features.text import Text, Texts
from recordmill.pipeline.spec.features.token_labels import TokenLabels

_OfImages = Image | ImageSequence | Mask | Masks | Boxes | Keypoints
_OfTexts = Text | Texts | Pair | Chat | TokenLabels
_OfValues = Category | Categories | Number | Numbers | Array | Raw
AnyFeature = Annotated[_OfImages | _OfTexts | _OfValues, Field(discriminator="kind")]
