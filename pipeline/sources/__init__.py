"""The sources: one file and one line each."""

from typing import Annotated

from pydantic import Field

from pipeline.sources.delimited import Csv, Tsv
from pipeline.sources.image_folder import ImageFolder
from pipeline.sources.jsonl import JsonLines
from pipeline.sources.parquet import Parquet
from pipeline.sources.text_files import TextFiles
from pipeline.sources.tfrecord_files import TFRecord
from pipeline.sources.user import UserRows
from pipeline.sources.webdataset import WebDataset

AnySource = Annotated[
    ImageFolder | Csv | Tsv | JsonLines | Parquet | TextFiles | TFRecord | WebDataset | UserRows,
    Field(discriminator="format"),
]
