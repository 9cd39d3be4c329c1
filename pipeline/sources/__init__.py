"""The sources: one file and one line each."""

from typing import Annotated

from pydantic import Field

from pipeline.sources.delimited import Csv, Tsv
from pipeline.sources.image_folder import ImageFolder
from pipeline.sources.jsonl import JsonLines
from pipeline.sources.text_files import TextFiles

AnySource = Annotated[ImageFolder | JsonLines | Csv | Tsv | TextFiles, Field(discriminator="format")]
