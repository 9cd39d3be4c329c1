"""The reader of each source, by its options: all that reads sources imports it, and Arrow with it."""

from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.sources.base import SourceReader
from recordmill.pipeline.sources.csv.source import CsvReader
from recordmill.pipeline.sources.image_folder.source import ImageFolderReader
from recordmill.pipeline.sources.jsonl.source import JsonLinesReader
from recordmill.pipeline.sources.options import (
    Csv,
    ImageFolder,
    JsonLines,
    Parquet,
    SourceOptions,
    TextFiles,
    TFRecord,
    Tsv,
    UserRows,
    WebDataset,
)
from recordmill.pipeline.sources.parquet.source import ParquetReader
from recordmill.pipeline.sources.python.source import UserRowsReader
from recordmill.pipeline.sources.text.source import TextReader
from recordmill.pipeline.sources.tfrecord.source import TFRecordReader
from recordmill.pipeline.sources.webdataset.source import WebDatasetReader

READERS: Mapping[type[SourceOptions], type[SourceReader[Any]]] = {
    ImageFolder: ImageFolderReader,
    Csv: CsvReader,
    Tsv: CsvReader,
    JsonLines: JsonLinesReader,
    Parquet: ParquetReader,
    TextFiles: TextReader,
    TFRecord: TFRecordReader,
    WebDataset: WebDatasetReader,
    UserRows: UserRowsReader,
}


def reader_of(source: SourceOptions) -> SourceReader[Any]:
    """Returns the reader of a source."""
    return READERS[type(source)](source)
