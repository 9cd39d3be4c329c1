"""The kinds of features: one file and one line each. A kind's graph is the module of the same name in `transforms`."""

from typing import Annotated

from pydantic import Field

from pipeline.kinds.boxes import Boxes
from pipeline.kinds.categories import Categories
from pipeline.kinds.category import Category
from pipeline.kinds.image import Image
from pipeline.kinds.image_sequence import ImageSequence
from pipeline.kinds.number import Number
from pipeline.kinds.numbers import Numbers
from pipeline.kinds.raw import Raw
from pipeline.kinds.text import Text

AnyFeature = Annotated[
    Image | ImageSequence | Boxes | Text | Category | Categories | Number | Numbers | Raw, Field(discriminator="kind")
]
