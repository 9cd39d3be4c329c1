"""The reader of each source, by format; importing it loads Arrow."""

from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.sources.formats.adopted import AdoptedReader
from recordmill.pipeline.sources.formats.annotated_images import AnnotatedImagesReader
from recordmill.pipeline.sources.formats.arrays import ArraysReader
from recordmill.pipeline.sources.formats.conll import ConllReader
from recordmill.pipeline.sources.formats.csv import CsvReader
from recordmill.pipeline.sources.formats.grouped import GroupedReader
from recordmill.pipeline.sources.formats.image_folder import ImageFolderReader
from recordmill.pipeline.sources.formats.json import JsonReader
from recordmill.pipeline.sources.formats.jsonl import JsonLinesReader
from recordmill.pipeline.sources.formats.parquet import ParquetReader
from recordmill.pipeline.sources.formats.text import TextReader
from recordmill.pipeline.sources.formats.tfrecord import TFRecordReader
from recordmill.pipeline.sources.formats.user_rows import UserRowsReader
from recordmill.pipeline.sources.formats.webdataset import WebDatasetReader
from recordmill.pipeline.sources.options import PATHS, SourceOptions
from recordmill.pipeline.sources.source_reader import SourceReader

READERS: Mapping[str, type[SourceReader[Any]]] = {
    "image_folder": ImageFolderReader,
    **dict.fromkeys(("coco", "voc", "yolo", "open_images", "labelme", "via"), AnnotatedImagesReader),
    **dict.fromkeys(("csv", "tsv"), CsvReader),
    "jsonl": JsonLinesReader,
    "json": JsonReader,
    "parquet": ParquetReader,
    "text": TextReader,
    **dict.fromkeys(("conll", "conllu"), ConllReader),
    "tfrecord": TFRecordReader,
    "arrays": ArraysReader,
    "adopted": AdoptedReader,
    "webdataset": WebDatasetReader,
    "python": UserRowsReader,
}


def reader_of(source: SourceOptions) -> SourceReader[Any]:
    """Returns a source's reader, with braces in its paths unescaped."""
    paths = {name: path.replace("[{]", "{") for name in PATHS if (path := getattr(source, name, None))}
    reader = READERS[source.format](source.model_copy(update=paths))
    return GroupedReader(reader.source, reader) if getattr(source, "group", ()) else reader
