"""The options of each kind of feature, without TensorFlow."""

from typing import Annotated

from pydantic import Field

from recordmill.pipeline.spec.features.category import Categories, Category
from recordmill.pipeline.spec.features.chat import Chat
from recordmill.pipeline.spec.features.image import Image, ImageSequence
from recordmill.pipeline.spec.features.mask import Mask, Masks
from recordmill.pipeline.spec.features.pair import Pair
from recordmill.pipeline.spec.features.places import Boxes, Keypoints
from recordmill.pipeline.spec.features.text import Text, Texts
from recordmill.pipeline.spec.features.token_labels import TokenLabels
from recordmill.pipeline.spec.features.values import Array, Number, Numbers, Raw

_OfImages = Image | ImageSequence | Mask | Masks | Boxes | Keypoints
_OfTexts = Text | Texts | Pair | Chat | TokenLabels
_OfValues = Category | Categories | Number | Numbers | Array | Raw
AnyFeature = Annotated[_OfImages | _OfTexts | _OfValues, Field(discriminator="kind")]
