"""The sources: one file and one line each."""

from typing import Annotated

from pydantic import Field

from recordmill.pipeline.sources.csv.source import Csv, Tsv
from recordmill.pipeline.sources.image_folder.source import ImageFolder
from recordmill.pipeline.sources.jsonl.source import JsonLines
from recordmill.pipeline.sources.parquet.source import Parquet
from recordmill.pipeline.sources.python.source import UserRows
from recordmill.pipeline.sources.text.source import TextFiles
from recordmill.pipeline.sources.tfrecord.source import TFRecord
from recordmill.pipeline.sources.webdataset.source import WebDataset

AnySource = Annotated[
    ImageFolder | Csv | Tsv | JsonLines | Parquet | TextFiles | TFRecord | WebDataset | UserRows,
    Field(discriminator="format"),
]
