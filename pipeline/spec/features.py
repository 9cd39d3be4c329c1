"""The options of each kind of feature, without TensorFlow."""

from typing import Annotated

from pydantic import Field

from recordmill.transforms.images.image_spec import Image, ImageSequence
from recordmill.transforms.images.mask_spec import Mask, Masks
from recordmill.transforms.images.places_spec import Boxes, Keypoints
from recordmill.transforms.texts.chat_spec import Chat
from recordmill.transforms.texts.pair_spec import Pair
from recordmill.transforms.texts.text_spec import Text, Texts
from recordmill.transforms.texts.token_labels_spec import TokenLabels
from recordmill.transforms.values.category_spec import Categories, Category
from recordmill.transforms.values.values_spec import Array, Number, Numbers, Raw

_OfImages = Image | ImageSequence | Mask | Masks | Boxes | Keypoints
_OfTexts = Text | Texts | Pair | Chat | TokenLabels
_OfValues = Category | Categories | Number | Numbers | Array | Raw
AnyFeature = Annotated[_OfImages | _OfTexts | _OfValues, Field(discriminator="kind")]
