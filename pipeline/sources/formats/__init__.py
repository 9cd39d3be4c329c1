"""The reader of each source, by format, loaded when a source has it; each loads Arrow."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from recordmill.pipeline.sources.formats.grouped import GroupedReader
from recordmill.pipeline.sources.options import PATHS, SourceOptions
from recordmill.pipeline.sources.source_reader import SourceReader

READERS: Mapping[str, str] = {
    "image_folder": "image_folder.ImageFolderReader",
    **dict.fromkeys(("coco", "voc", "yolo", "open_images", "labelme", "via"), "annotated_images.AnnotatedImagesReader"),
    **dict.fromkeys(("csv", "tsv"), "csv.CsvReader"),
    "jsonl": "json.JsonLinesReader",
    "json": "json.JsonReader",
    "parquet": "parquet.ParquetReader",
    "text": "text.TextReader",
    **dict.fromkeys(("conll", "conllu"), "conll.ConllReader"),
    "tfrecord": "tfrecord.TFRecordReader",
    "arrays": "arrays.ArraysReader",
    "adopted": "adopted.AdoptedReader",
    "webdataset": "webdataset.WebDatasetReader",
    "python": "user_rows.UserRowsReader",
}


def reader_of(source: SourceOptions) -> SourceReader[Any]:
    """Returns a source's reader, with braces in its paths unescaped."""
    paths = {name: path.replace("[{]", "{") for name in PATHS if (path := getattr(source, name, None))}
    module, name = READERS[source.format].split(".")
    kind: type[SourceReader[Any]] = getattr(import_module(f"{__name__}.{module}"), name)
    reader = kind(source.model_copy(update=paths))
    return GroupedReader(reader.source, reader) if getattr(source, "group", ()) else reader
