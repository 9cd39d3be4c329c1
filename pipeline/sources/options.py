"""The options of every source, as a spec gives them; `sources.formats` finds their readers, which load Arrow.

>>> Csv(format="csv", path="rows.csv").separator
','
"""

import codecs
import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, model_validator

from recordmill.pipeline.sources.globs import Template, escape, is_glob, without_spans
from recordmill.pipeline.yaml_document import Options

REFERENCE = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")  # a user's `module:function`
PATHS = ("path", "images", "names", "image_list")  # options that hold paths, with placeholders or without
OF_TEXT = ("text", "file_name", "label", "line")
"""The columns of files of text; `columns` may name files instead."""
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
Item = TypeVar("Item")
Source = TypeVar("Source", bound="SourceOptions")


def _not_reserved(columns: dict[str, str]) -> dict[str, str]:
    for name in (name for name in columns.values() if name.startswith("@")):
        raise ValueError(f"the column {name!r} is reserved: rename it, `@` begins internal columns")
    return columns


def _of_form(form: re.Pattern[str], words: str) -> AfterValidator:
    """Makes a check of a text's form; `words` describe that in the message."""

    def check(value: str) -> str:
        if form.fullmatch(value) is None:
            raise ValueError(f"should be {words}, got {value!r}")
        return value

    return AfterValidator(check)


def _header(value: Any) -> Any:
    if value is not True and not isinstance(value, list | tuple):
        raise ValueError(f"should be true, or the list of column names for files without a header, got {value!r}")
    return value


def _known(encoding: str) -> str:
    """Checks that Python knows a text encoding, and that its decoder can replace invalid bytes."""
    try:
        b"a".decode(encoding, "ignore")  # refuses codecs for other data, such as `base64`
        data = "a".encode(encoding) + bytes(range(256))
        codecs.getincrementaldecoder(encoding)("replace").decode(data, final=True)
    except (LookupError, ValueError) as error:
        raise ValueError(f"is not a text encoding known to Python: {encoding!r}; try utf-8 or cp1252") from error
    return encoding


def _as_mapping(value: Any) -> Any:
    """Reads a list of column names as each one's own name, in order."""
    if not isinstance(value, list | tuple):
        raise ValueError("should be the list of the columns' names, in order, such as [word, pos, chunk, ner]")
    if again := sorted({name for name in value if value.count(name) > 1}):
        raise ValueError(f"names {again[0]!r} twice")
    return {name: name for name in value}


def json_steps(path: str) -> tuple[str, ...]:
    """Splits a path in a JSON document: keys, and `[]` for the elements of a list.

    >>> json_steps("data[].qas[]")
    ('data', '[]', 'qas', '[]')
    """
    return tuple(re.findall(r"[^.\[\]]+|\[\]", path))


JSON_PATH = re.compile(r"(?=.)[^.\[\]]*(\[\])*(\.[^.\[\]]+(\[\])*)*")
JsonPath = Annotated[str, _of_form(JSON_PATH, "keys with dots, and [] after a list, such as data[].qas[]")]
CHARACTER = re.compile(r"[\x01-\x09\x0b\x0c\x0e-\x7f]")
Character = Annotated[str, _of_form(CHARACTER, 'one ASCII character, such as "," or "\\t"')]
Header = Annotated[Literal[True] | Annotated[tuple[str, ...], Field(min_length=1)], BeforeValidator(_header)]
Encoding = Annotated[str, AfterValidator(_known)]
Reference = Annotated[str, _of_form(REFERENCE, "`module:function`")]
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value, str | tuple[str, ...])
]


def _of_stars(pattern: str) -> str:
    *folders, name = pattern.strip("/").split("/")
    is_wrong = any(part.count("*") > 1 for part in (*folders, name)) or "*" in folders
    if is_wrong or not pattern.strip("/*") or ("*" in pattern and "*" not in name):
        what = "should be a folder, `masks`, or a name with one `*` for the image's, `*_mask`"
        raise ValueError(f"{what}, or both, `*_labels/*_L` beside `train/`, got {pattern!r}")
    return pattern.strip("/")


class SourceOptions(Options):
    """Options of every source."""

    format: str
    path: str
    split: str | None = None
    """The split of all the source's rows; by default each row decides."""
    columns: Annotated[dict[str, Annotated[str, Field(min_length=1)]], AfterValidator(_not_reserved)] = {}
    """The source's own column names, by the names in the spec."""

    @property
    def joined(self) -> Sequence[str]:
        """The files, relative to `path`, with one line of each row; empty if a row lies in one file."""
        return ()

    def by_asked_names(self, values: Mapping[str, Item]) -> dict[str, Item]:
        """Renames a mapping's keys from the source's column names to the spec's."""
        renamed = {name: values[own] for name, own in self.columns.items() if own in values}
        return renamed | {own: value for own, value in values.items() if own not in self.columns.values()}


class ImageFolder(SourceOptions):
    """A folder of images: in folders by class, with captions beside them, or with metadata files."""

    format: Literal["image_folder"]
    path: str = Field(min_length=1)
    """The folder."""
    beside: dict[str, Annotated[str, AfterValidator(_of_stars)]] = {}
    """Files beside the images, by column: `{mask: masks}` of the image's name in another folder, `{mask: "*_mask"}` of
    a longer name, or both, `masks/*_mask`, `*_labels/*_L`. `{image: photos/*_photo, …}` says the same of the images,
    whose `label` and `split` are then folders below `photos`. Not with metadata files, which name files themselves."""
    image_list: str | None = Field(default=None, min_length=1)
    """A file that lists the rows' images, one a line, by name or path; by default all are rows. Not with metadata."""


class TableOptions(SourceOptions):
    """Files of rows."""

    path: str = Field(min_length=1)
    """A file, a folder (its files of this format) or a glob; `**` crosses folders."""
    images: str | None = Field(default=None, min_length=1)
    """The folder of relative image paths, by default that of the file that names them; `train/*.jpg` adds a missing
    ending."""


class EncodedOptions(TableOptions):
    """Files of text."""

    encoding: Encoding = "utf-8"
    """The files' encoding, by any name that Python knows."""


class RowsOptions(TableOptions):
    """Files of rows with several columns."""

    group: Names = ()
    """Columns: rows with the same values become one, with lists of the values that a feature asks for as a list."""


class DelimitedOptions(RowsOptions, EncodedOptions):
    """Files of records with separated cells."""

    separator: Character = ","
    """The character between cells."""
    quote: Character | None = '"'
    """The character around a cell with separators, line breaks or the (doubled) quote itself; none: no quoting."""
    escape: Character | None = None
    """The character that makes the next one literal: a backslash, if quotes are written as `\\"`."""
    trim: bool = False
    """True strips leading blanks of a cell, also before its quote."""
    skip: int = Field(default=0, ge=0)
    """The number of records in each file before the header or first row; blank lines do not count."""
    header: Header = True
    """True if the first record names the columns; otherwise the column names of files without a header."""
    decimal: Literal[".", ","] = "."
    """The decimal mark of numbers. With a comma, `1.234` is rejected: it may be a thousand."""

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
    """The character between cells."""


class JsonLines(RowsOptions, EncodedOptions):
    """Files of JSON objects, one a line."""

    format: Literal["jsonl"]


class Json(RowsOptions, EncodedOptions):
    """Files of one JSON document each, with a list of rows inside."""

    format: Literal["json"]
    rows: JsonPath
    """The list of rows: `[]` the document itself, `images[]` one in it, `data[].paragraphs[].qas[]` one in each."""
    keep: tuple[JsonPath, ...] = ()
    """Values of the objects around a row, such as `data[].title`: each is a column, called by its last key."""

    @model_validator(mode="after")
    def _check(self) -> "Json":
        steps = json_steps(self.rows)
        if steps[-1] != "[]":
            raise ValueError(f"`rows` should end with a list: `{self.rows}[]`")
        for path in self.keep:
            *around, name = json_steps(path)
            if name == "[]" or [*steps[: len(around)]] != around or {*steps[len(around) :][:1]} <= {"[]", name}:
                outer = [".".join(steps[:end]).replace(".[]", "[]") for end, step in enumerate(steps) if step != "[]"]
                places = ", ".join(f"`{each}.KEY`".replace("`.", "`") for each in outer) or "an object around the list"
                raise ValueError(f"`keep` should name values of objects around a row, {places}, got `{path}`")
        names = [json_steps(path)[-1] for path in self.keep]
        if again := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"`keep` has two values called {again[0]!r}: keep one")
        return self


class Parquet(RowsOptions):
    """Files of Apache Parquet."""

    format: Literal["parquet"]


class TextFiles(EncodedOptions):
    """Files of text: each line, or each file, is a row; or line n of several files."""

    format: Literal["text"]
    path: str = Field(default=".", min_length=1)
    """A file, a folder (its files of this format) or a glob; with files in `columns` their folder, which may be left
    out."""
    document: Literal["line", "file"] = "line"
    """The unit of a row."""

    @property
    def joined(self) -> Sequence[str]:
        """The files in `columns`, relative to `path`."""
        return list(dict.fromkeys(own for own in self.columns.values() if own not in OF_TEXT))

    @model_validator(mode="after")
    def _check(self) -> "TextFiles":
        if not self.joined and "path" not in self.model_fields_set:
            raise ValueError("`path` is needed but missing, unless `columns` maps names to files: {en: train.en}")
        for file in self.joined:
            if file.startswith("/") or "://" in file or posixpath.normpath(file).startswith("../"):
                raise ValueError(f"`columns` has {file!r}: name a file inside `path`, the folder of all of them")
        if self.joined and self.document == "file":
            raise ValueError("`document: file` joins no lines: leave it out, or the files in `columns`")
        return self


class Conll(EncodedOptions):
    """Files of sentences between blank lines, a token a line: the columns of CoNLL."""

    format: Literal["conll", "conllu"]
    """Comments before a sentence are skipped; in `conllu` also ranges such as `1-2` and empty nodes such as `8.1`, by
    the column `id`."""
    columns: Annotated[
        dict[str, Annotated[str, Field(min_length=1)]],
        BeforeValidator(_as_mapping, tuple[str, ...]),
        AfterValidator(_not_reserved),
        PlainSerializer(list, return_type=list[str]),
    ] = {}
    """The names of a line's cells, in order; by default, and only for `conllu`, its ten in small letters."""

    @model_validator(mode="after")
    def _named(self) -> "Conll":
        if not self.columns and self.format == "conll":
            raise ValueError("`columns` is needed: the names of a line's cells, in order: [word, pos, chunk, ner]")
        return self

    @property
    def cells(self) -> Sequence[str]:
        """The names of a line's cells, in order."""
        return [*self.columns] or CONLLU


class ArchiveOptions(TableOptions):
    """Files of records that contain the images' bytes, such as TFRecord and tar files."""

    images: None = None
    """None: the records contain the images."""


class TFRecord(ArchiveOptions):
    """Files of TFRecord."""

    format: Literal["tfrecord"]
    compression: Literal["auto", "gzip", "zlib", "none"] = "auto"
    """The files' compression; `auto` checks their first bytes."""


class Arrays(ArchiveOptions):
    """Arrays of rows, along their first side: NumPy's `.npz` and `.npy`, and idx, the format of MNIST."""

    format: Literal["arrays"]
    path: str = Field(min_length=1)
    """A `.npz` file, or a folder of `.npy` and idx files; a column is an array of the one, or a file of the other."""


class Adopted(ArchiveOptions):
    """The records of an adopted dataset."""

    format: Literal["adopted"]
    path: str = Field(min_length=1)
    """The dataset's folder, the `--output` of `recordmill adopt`, or a version's own folder; or its URL."""


class WebDataset(ArchiveOptions):
    """Tar files of WebDataset."""

    format: Literal["webdataset"]


class AnnotatedImages(TableOptions):
    """Images with annotations in a published format: COCO, Pascal VOC, YOLO, Open Images, LabelMe, VIA."""

    format: Literal["coco", "voc", "yolo", "open_images", "labelme", "via"]
    """The annotation format."""
    path: str = Field(min_length=1)
    """The annotations: a file, a folder or a glob. For `voc`, `yolo` and `labelme` a folder, searched recursively."""
    images: str | None = Field(default=None, min_length=1)
    """The folder of the images, by default that of the JSON or CSV file, or the annotations' for `voc`, `yolo`,
    `labelme` and `via`."""
    names: str | None = Field(default=None, min_length=1)
    """The file of class names for `yolo` (`data.yaml`, `classes.txt`) and `open_images` (class descriptions, CSV). By
    default a category is the annotation's number or identifier."""
    image_list: str | None = Field(default=None, min_length=1)
    """A file that lists the rows' images, one a line, by name or path, or their folder; by default all images are
    rows."""
    attribute: str | None = Field(default=None, min_length=1)
    """The attribute of regions that names the class, for `via`; by default the only one."""

    @model_validator(mode="after")
    def _check_names(self) -> "AnnotatedImages":
        if self.names is not None and self.format not in ("yolo", "open_images"):
            raise ValueError(f"`names` is not for `{self.format}`, whose annotations name the classes: leave it out")
        if self.attribute is not None and self.format != "via":
            raise ValueError(f"`attribute` is for `via`, not for `{self.format}`: leave it out")
        return self


class UserRows(SourceOptions):
    """Rows that a user's function yields."""

    format: Literal["python"]
    path: str = Field(default=".", min_length=1)
    """The folder of `inputs` and of relative image paths."""
    rows: Reference
    """The function, `module:function`: called with `options`, it yields dictionaries."""
    parts: Reference | None = None
    """A function, called with `options`, that returns a list of JSON values: parallel workers call `rows` with each as
    `part`."""
    options: dict[str, Any] = {}
    """The functions' arguments, by name."""
    inputs: tuple[str, ...] = ()
    """The files that the functions read, as globs: a change to one starts a new build."""
    count: int | None = Field(default=None, ge=1)
    """The approximate number of rows."""

    def references(self) -> list[str]:
        """Lists the user's functions."""
        return [self.rows, *([self.parts] if self.parts else [])]


_Tables = Csv | Tsv | JsonLines | Json | Parquet | TextFiles | Conll | TFRecord | Arrays | Adopted | WebDataset
AnySource = Annotated[ImageFolder | AnnotatedImages | _Tables | UserRows, Field(discriminator="format")]


def is_template(source: SourceOptions) -> bool:
    """Whether a source's path has spans."""
    return bool(Template(source.path).names)


def in_folder(source: Source, folder: str) -> Source:
    """Resolves a source's relative paths against a folder, escaped in globs and templates."""
    paths = {name: getattr(source, name, None) for name in PATHS}
    resolved = {
        name: str(Path(without_spans(escape(folder) if is_glob(path) or Template(path).names else folder), path))
        for name, path in paths.items()
        if isinstance(path, str) and path and "://" not in path
    }
    return source.model_copy(update=resolved)
