"""The kinds of features: one file and one line each. A kind's graph is the module of the same name in `transforms`."""

from typing import Annotated

from pydantic import Field

from recordmill.pipeline.spec.features.boxes import Boxes
from recordmill.pipeline.spec.features.categories import Categories
from recordmill.pipeline.spec.features.category import Category
from recordmill.pipeline.spec.features.image import Image
from recordmill.pipeline.spec.features.image_sequence import ImageSequence
from recordmill.pipeline.spec.features.number import Number
from recordmill.pipeline.spec.features.numbers import Numbers
from recordmill.pipeline.spec.features.raw import Raw
from recordmill.pipeline.spec.features.text import Text

AnyFeature = Annotated[
    Image | ImageSequence | Boxes | Text | Category | Categories | Number | Numbers | Raw, Field(discriminator="kind")
]
