"""The sources: one file and one line each."""

from typing import Annotated

from pydantic import Field

from pipeline.sources.image_folder import ImageFolder
from pipeline.sources.jsonl import JsonLines

AnySource = Annotated[ImageFolder | JsonLines, Field(discriminator="format")]
