"""The columns of an export, and the spec's features that rebuild them; each feature adds its own."""

import io
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from recordmill.pipeline.build.base.live_analysis import ANALYSIS
from recordmill.pipeline.dataset.paths import safe_name
from recordmill.pipeline.dataset.version import DatasetVersion
from recordmill.pipeline.facts.version import learned_from_rejects
from recordmill.pipeline.inspection.values import StoredImage
from recordmill.pipeline.spec.features import AnyFeature
from recordmill.pipeline.spec.features.feature import Feature
from recordmill.pipeline.versions.forgotten import FORGOTTEN, LEARNED_OF
from recordmill.transforms.contract.image_header import JPEG, PNG
from recordmill.transforms.contract.image_rules import TAG
from recordmill.transforms.contract.kinds import read_descriptions
from recordmill.transforms.contract.kinds.base import Description, Export, ExportError, Json
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.number import LEARNED_ELSEWHERE
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.contract.kinds.text import LIBRARY_TOKENIZERS, WINDOW_PARTS
from recordmill.transforms.contract.stored import KEY, part_name

EXIF = b"Exif\0\0"
PNG_HEAD = 33  # bytes of a PNG's signature and its first chunk, IHDR
WEBP_FLAGS, HAS_EXIF = 20, 0x08  # the offset of an extended WebP's flags, and the EXIF flag


class ImageFile(NamedTuple):
    """An image file; `suffix` includes the dot: `.png`."""

    suffix: str
    data: bytes


def image_file(image: StoredImage | None) -> ImageFile | None:
    """Returns a stored image as a file, stored by a build as the same bytes.

    Raw pixels become PNG; other images keep their bytes, originals with their EXIF orientation.
    """
    if image is None:
        return None
    if image.format == "raw":
        into = io.BytesIO()
        image.pillow().save(into, "PNG")
        return ImageFile(".png", into.getvalue())
    return ImageFile(image.suffix, image.data if image.orientation == 1 else _turned(image.data, image.orientation))


def _turned(data: bytes, orientation: int) -> bytes:
    """Returns an original with its EXIF orientation, which a build removed."""
    exif, into = Image.Exif(), io.BytesIO()
    exif[TAG] = orientation
    tiff = exif.tobytes().removeprefix(EXIF)
    with Image.open(io.BytesIO(data)) as file:
        if file.getexif().get(TAG, 1) == orientation:
            return data
        if data.startswith(JPEG):
            return data[:2] + b"\xff\xe1" + struct.pack(">H", len(EXIF + tiff) + 2) + EXIF + tiff + data[2:]
        if data.startswith(PNG):
            chunk = b"eXIf" + tiff
            sized = struct.pack(">I", len(tiff)) + chunk + struct.pack(">I", zlib.crc32(chunk))
            return data[:PNG_HEAD] + sized + data[PNG_HEAD:]
        if data[8:16] == b"WEBPVP8X":
            return _webp_with(data, tiff)
        file.save(into, file.format, exif=exif, lossless=True)  # a simple WebP cannot hold EXIF
        return into.getvalue()


def _webp_with(data: bytes, exif: bytes) -> bytes:
    """Adds EXIF to an extended WebP: at its end, or before an existing one, since the first one counts."""
    end, place = min(len(data), 8 + int.from_bytes(data[4:8], "little")), 12
    while place < end and data[place : place + 4] != b"EXIF":
        size = int.from_bytes(data[place + 4 : place + 8], "little")
        place += 8 + size + size % 2
    chunk = b"EXIF" + struct.pack("<I", len(exif)) + exif
    flags = bytes([data[WEBP_FLAGS] | HAS_EXIF])
    body = data[8:WEBP_FLAGS] + flags + data[WEBP_FLAGS + 1 : place] + chunk + data[place:]
    return data[:4] + struct.pack("<I", len(body)) + body


@dataclass
class Columns(Export):
    """The columns of a version with its rows' keys, and the files of its features."""

    is_by_span: bool = False  # whether the span is part of the key, since two spans may hold one key
    files: dict[str, Sequence[str]] = field(default_factory=dict)  # the lines of files named by features, by path
    windows: tuple[str, ...] = ()  # the column of windows' numbers, if several have one key

    @property
    def key(self) -> tuple[str, ...]:
        """The key's columns: `key`, after `span` if two spans may hold one key."""
        return (self._free("span"), KEY) if self.is_by_span else (KEY,)

    @property
    def split(self) -> str:
        """The column of a row's split."""
        return self._free("split")

    def _free(self, name: str) -> str:
        """Appends `_` until no feature's column has the name."""
        taken = {column.name for column in self.columns}
        while name in taken:
            name += "_"
        return name

    def add_words(self, feature: str, words: Sequence[str]) -> str:
        path = f"vocabularies/{safe_name(feature)}.txt"
        self.files[path] = words
        return path


def _image_files(value: Any) -> Any:
    return [image_file(image) for image in value] if isinstance(value, list) else image_file(value)


def columns_of(dataset: DatasetVersion) -> Columns:
    """Returns the columns of a version.

    Raises:
        ExportError: records of packed texts hold several rows each; the version lacks a spec; or two features need the
            same column name.
        DatasetError: a feature's kind is unknown, or a vocabulary is damaged.
    """
    manifest = dataset.manifest
    may_repeat = manifest.spec.get("key") is not None or manifest.spec.get("analysis") == "frozen"
    is_learned_elsewhere = ANALYSIS in manifest.provenance or LEARNED_OF in manifest.provenance.get(FORGOTTEN, {})
    result = Columns(dataset.label, is_learned_elsewhere, dataset.vocabulary)
    result.is_by_span = bool(manifest.spans) and may_repeat
    for name, description in read_descriptions(dataset.features).items():
        options = _options(dataset, name, description)
        description.export(result, name, options)
        if getattr(description, "window", None):
            result.windows = (part_name(name, WINDOW_PARTS[0]),)
        if options.get("normalize") == "dataset" and result.is_learned_elsewhere:
            result.note(name, f"{LEARNED_ELSEWHERE}, and a build relearns them")
    result.notes += learned_from_rejects(manifest)
    result.columns = [replace(each, cell=_image_files) if each.type == "image" else each for each in result.columns]
    owners: dict[str, str] = {}
    for column in result.columns:
        if (owner := owners.setdefault(column.name, column.feature)) != column.feature:
            both = f"'{owner}' and '{column.feature}' both need the column '{column.name}'"
            raise ExportError(f"{both}: rename one of them and build the dataset again")
    if result.is_by_span:
        result.notes.append(f"two spans may hold the same key: rows are identified by {' and '.join(result.key)}")
    return result


def _as_built(given: Json, description: Description) -> dict[str, Any]:
    """Returns a spec's words of a build for a feature of adopted records, without how records hold it."""
    left_out = ("column", "columns", *(["shape"] if given["kind"] != "array" else []))
    options = {option: value for option, value in given.items() if option not in left_out}
    if not isinstance(description, Pixels):
        return options
    *sides, channels = description.shape
    size = {"fit": "none"} if None in sides else {"size": sides}
    return options | size | {"normalize": "none"} | ({"channels": 1} if channels == 1 else {})


def _options(dataset: DatasetVersion, name: str, description: Description) -> dict[str, Any]:
    """Returns a feature's non-default options, except those on the source's column."""
    if isinstance(description, OwnDescription):
        return {}
    given: Json = dataset.manifest.spec.get("features", {}).get(name, {})
    if dataset.manifest.adopted:
        given = _as_built(given, description)
    if given.get("tokenizer") in LIBRARY_TOKENIZERS:  # these refuse what other tokenizers do, even by its default
        given = {option: value for option, value in given.items() if option not in ("normalize", "case")}
    adapter: TypeAdapter[Feature] = TypeAdapter(AnyFeature)
    try:
        feature = adapter.validate_python(given)
    except ValidationError:
        lacks = f"{dataset.version} lacks a valid spec of '{name}'"
        raise ExportError(f"{lacks}: export it with the Recordmill that built it") from None
    options = feature.model_dump(mode="json", exclude_defaults=True)
    return {"kind": feature.kind} | {key: options[key] for key in options if key not in ("kind", "column", "separator")}
