"""The options of every source, as a spec gives them; `sources.formats` finds the reader of each, which loads Arrow.

>>> Csv(format="csv", path="rows.csv").separator
','
"""

import codecs
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from recordmill.pipeline.yaml_document import Options

REFERENCE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")  # a function of the user's: `module:function`
PATHS = ("path", "images", "names", "image_list")  # the options that are paths, and may hold placeholders
Item = TypeVar("Item")


def _not_reserved(columns: dict[str, str]) -> dict[str, str]:
    for name in (name for name in columns.values() if name.startswith("@")):
        raise ValueError(f"the column {name!r} cannot be read: rename it, `@` begins our own")
    return columns


def _character(value: str) -> str:
    if len(value) != 1 or not value.isascii() or value in "\0\r\n":
        raise ValueError(f'should be one ASCII character, such as "," or "\\t", got {value!r}')
    return value


def _header(value: Any) -> Any:
    if value is not True and not isinstance(value, list | tuple):
        raise ValueError(f"should be true, or the list of the columns' names of files without a header, got {value!r}")
    return value


def _known(encoding: str) -> str:
    """Checks that Python knows an encoding of text, and that it reads anything to the end."""
    try:
        b"a".decode(encoding, "ignore")  # refuses codecs that are not of text, such as `base64`
        data = "a".encode(encoding) + bytes(range(256))
        codecs.getincrementaldecoder(encoding)("replace").decode(data, final=True)
    except (LookupError, ValueError) as error:
        raise ValueError(f"is no encoding of text that Python knows: {encoding!r}; try utf-8 or cp1252") from error
    return encoding


def _reference(value: str) -> str:
    if REFERENCE.fullmatch(value) is None:
        raise ValueError(f"should be `module:function`, got {value!r}")
    return value


Character = Annotated[str, AfterValidator(_character)]
Header = Annotated[Literal[True] | Annotated[tuple[str, ...], Field(min_length=1)], BeforeValidator(_header)]
Encoding = Annotated[str, AfterValidator(_known)]
Reference = Annotated[str, AfterValidator(_reference)]


class SourceOptions(Options):
    """The options that every source has."""

    format: str
    path: str
    split: str | None = None
    """The split that all rows of the source go to; by default each row's own."""
    columns: Annotated[dict[str, Annotated[str, Field(min_length=1)]], AfterValidator(_not_reserved)] = {}
    """The source's own names of columns, by the names that the spec reads them by."""

    def by_asked_names(self, values: Mapping[str, Item]) -> dict[str, Item]:
        """Renames the keys of a mapping from the source's own names of columns to those that the spec reads them by."""
        renamed = {name: values[own] for name, own in self.columns.items() if own in values}
        return renamed | {own: value for own, value in values.items() if own not in self.columns.values()}


class ImageFolder(SourceOptions):
    """A folder of images: in folders by class, with captions beside them, or with metadata files."""

    format: Literal["image_folder"]
    path: str = Field(min_length=1)
    """The folder."""


class TableOptions(SourceOptions):
    """Files of rows."""

    path: str = Field(min_length=1)
    """A file, a folder (the files in it of this format) or a glob, where `**` is any number of folders."""
    images: str | None = Field(default=None, min_length=1)
    """The folder that the paths of images are relative to; without it, the folder of the file that names them. With an
    ending that the paths lack: `train/*.jpg`."""


class EncodedOptions(TableOptions):
    """Files of text."""

    encoding: Encoding = "utf-8"
    """The files' encoding, by any name that Python knows."""


class DelimitedOptions(EncodedOptions):
    """Files of records whose cells have a separator between them."""

    separator: Character = ","
    """The character between two cells."""
    quote: Character | None = '"'
    """The character around a cell that holds separators, line breaks or itself, which is doubled; none: no cell is."""
    escape: Character | None = None
    """The character that makes the next one a plain character: a backslash, where quotes are written as `\\"`."""
    trim: bool = False
    """True: blanks at the beginning of a cell, also before its quote, are no part of it."""
    skip: int = Field(default=0, ge=0)
    """The number of records before the header, or before the first row, of each file; blank lines do not count."""
    header: Header = True
    """True: the first record names the columns; otherwise their names, of files without a header."""
    decimal: Literal[".", ","] = "."
    """The character before the fraction of a number. With a comma, `1.234` is a reject: it may be a thousand."""

    @model_validator(mode="after")
    def _check(self) -> "DelimitedOptions":
        characters = {"quote": self.quote, "separator": self.separator, "escape": self.escape}
        for (name, character), (other, same) in combinations(characters.items(), 2):
            if character == same is not None:
                raise ValueError(f"`{name}` and `{other}` are both {same!r}")
        if self.header is not True and len(set(self.header)) < len(self.header):
            raise ValueError(f"`header` has a name twice: {', '.join(self.header)}")
        return self


class Csv(DelimitedOptions):
    """Files of comma-separated values."""

    format: Literal["csv"]


class Tsv(DelimitedOptions):
    """Files of tab-separated values."""

    format: Literal["tsv"]
    separator: Character = "\t"
    """The character between two cells."""


class JsonLines(EncodedOptions):
    """Files of JSON objects, one a line."""

    format: Literal["jsonl"]


class Parquet(TableOptions):
    """Files of Apache Parquet."""

    format: Literal["parquet"]


class TextFiles(EncodedOptions):
    """Files of text: each line, or each file, is a row."""

    format: Literal["text"]
    document: Literal["line", "file"] = "line"
    """The unit that is a row."""


class ArchiveOptions(TableOptions):
    """Files of records that hold the images' bytes themselves, such as TFRecord and tar files."""

    images: None = None
    """None: images lie in the records."""


class TFRecord(ArchiveOptions):
    """Files of TFRecord."""

    format: Literal["tfrecord"]
    compression: Literal["auto", "gzip", "zlib", "none"] = "auto"
    """The compression of the files; `auto` looks at their first bytes."""


class WebDataset(ArchiveOptions):
    """Tar files of WebDataset."""

    format: Literal["webdataset"]


class AnnotatedImages(TableOptions):
    """Images with annotations in a published format: COCO, Pascal VOC, YOLO, Open Images."""

    format: Literal["coco", "voc", "yolo", "open_images"]
    """The format of the annotations."""
    path: str = Field(min_length=1)
    """The annotations: a file, a folder or a glob. Of `voc` and `yolo` the folder of all annotations, also those below
    it."""
    images: str | None = Field(default=None, min_length=1)
    """The folder of the images. Without it, the folder of the JSON file or of the CSV file; of `voc` and `yolo` that of
    the annotations."""
    names: str | None = Field(default=None, min_length=1)
    """The file with the names of the classes, for `yolo` (`data.yaml`, `classes.txt`) and `open_images` (the class
    descriptions, CSV). Without it, a category is what the annotation says: a number, an identifier."""
    image_list: str | None = Field(default=None, min_length=1)
    """A file that lists the images that are rows, one a line, by name or path, or their folder; without it, all are."""

    @model_validator(mode="after")
    def _check_names(self) -> "AnnotatedImages":
        if self.names is not None and self.format in ("coco", "voc"):
            raise ValueError(f"`names` is not for `{self.format}`, whose annotations name the classes: leave it out")
        return self


class UserRows(SourceOptions):
    """Rows that a function yields."""

    format: Literal["python"]
    path: str = Field(default=".", min_length=1)
    """The folder that paths of images in rows, and `inputs`, are relative to."""
    rows: Reference
    """The function, as `module:function`: called with `options`, it yields dictionaries."""
    parts: Reference | None = None
    """A function that, called with `options`, gives a list of JSON values: `rows` is called with each as `part`, by
    several workers at once."""
    options: dict[str, Any] = {}
    """The arguments of the functions, by name."""
    inputs: tuple[str, ...] = ()
    """The files that are read, as globs: where one of them has changed, a build is a new one."""
    count: int | None = Field(default=None, ge=1)
    """About how many rows there are."""

    def references(self) -> list[str]:
        """Lists the functions that it names."""
        return [self.rows, *([self.parts] if self.parts else [])]


AnySource = Annotated[
    ImageFolder | AnnotatedImages | Csv | Tsv | JsonLines | Parquet | TextFiles | TFRecord | WebDataset | UserRows,
    Field(discriminator="format"),
]
