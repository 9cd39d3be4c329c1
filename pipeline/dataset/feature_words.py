"""Describes features in words, for `show` and the report: what a record stores, and what was learned of the values.

A description that this Recordmill cannot read is None; its kind and type are shown as they stand in the manifest.

>>> stored_words(None, {"kind": "later", "stored": "int64", "shape": [2, 3]})
'int64 2×3'
"""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from recordmill.pipeline.dataset.file_names import vocabulary_name
from recordmill.pipeline.dataset.manifest import Json
from recordmill.pipeline.dataset.vocabulary import Ids
from recordmill.pipeline.terminal_text import count
from recordmill.transforms.contract.kinds.base import Description
from recordmill.transforms.contract.kinds.boxes import BoxesDescription
from recordmill.transforms.contract.kinds.category import CategoriesDescription, CategoryDescription
from recordmill.transforms.contract.kinds.image import Pixels
from recordmill.transforms.contract.kinds.number import NumberDescription, NumbersDescription
from recordmill.transforms.contract.kinds.raw import OwnDescription
from recordmill.transforms.contract.kinds.text import TextDescription, TextsDescription

SHOWN_BOUNDARIES = 3
ENCODINGS = {"auto": "JPEG or PNG", "jpeg": "JPEG", "png": "PNG", "raw": "pixels", "original": "original files"}
TOKENS = {"words": "word", "whitespace": "word", "characters": "character", "bytes": "byte"}


def stored_words(description: Description | None, json: Json) -> str:
    """Describes what is stored of a row: the type and, of a list, the number of values."""
    stored, length, most = str(json.get("stored", "")), getattr(description, "length", None), json.get("max_length")
    match description:
        case Pixels():
            stored = _image(description)
        case BoxesDescription():
            stored = f"float32 boxes of {description.image}"
        case TextDescription():
            stored = f"{TOKENS.get(description.tokenizer, description.tokenizer)} ids"
            if description.packed:
                return f"{stored}, packed in rows of {description.packed:,}"
            if isinstance(description, TextsDescription):
                stored = f"{_texts(description)}: {stored}"
        case CategoryDescription() | CategoriesDescription():
            cross = f" of {' × '.join(json['cross'])}" if json.get("cross") else ""
            stored += f" ids{cross}{' (multi-hot)' if json.get('read') == 'multi_hot' else ''}"
        case NumberDescription() | NumbersDescription() if description.buckets is not None:
            stored += f" ids of {description.buckets:,} buckets"
        case OwnDescription(shape=None):
            length = "varying"
        case _ if isinstance(json.get("shape"), list):
            stored = f"{stored} {_sides(json['shape'])}".strip()
    if length is None:
        return stored
    if isinstance(length, int):
        return f"{stored}, {length:,} each"
    return f"{stored}, any number" if most is None else f"{stored}, at most {most:,}"


def _texts(description: TextsDescription) -> str:
    if isinstance(description.texts_per_row, int):
        return f"{description.texts_per_row:,} texts"
    return "any number of texts" if description.max_texts is None else f"at most {description.max_texts:,} texts"


def _sides(shape: Sequence[int | None]) -> str:
    return "×".join(map(str, shape))


def _image(description: Pixels) -> str:
    encoding = ENCODINGS.get(description.encoding, description.encoding)
    *sides, channels = description.shape
    if None in sides:
        return f"{encoding}, each of its own size, {count(channels or 0, 'channel')}"
    read_as = " read as" if description.encoding == "original" else ""
    return f"{encoding}{read_as} {_sides(description.shape)}"


def statistics_words(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    """Describes a feature's values, piece by piece."""
    yield from _vocabulary(name, description, statistics)
    if "mean" in statistics:
        yield f"mean {_numbers(statistics['mean'])}"
        yield f"variance {_numbers(statistics['variance'])}"
    if "minimum" in statistics:
        yield f"{_numbers(statistics['minimum'])} to {_numbers(statistics['maximum'])}"
    if "median" in statistics:
        yield f"median {_numbers(statistics['median'])}"
    if isinstance(description, NumberDescription | NumbersDescription) and description.boundaries is not None:
        buckets = [_numbers(boundary) for boundary in description.boundaries]
        if len(buckets) > SHOWN_BOUNDARIES + 1:
            buckets[SHOWN_BOUNDARIES:-1] = ["…"]
        yield f"buckets from {' '.join(buckets)}"
    if statistics.get("relative_error"):
        yield f"quantiles within {statistics['relative_error']:.2g}"
    for form, images in statistics.get("transcoded", {}).items():
        yield f"{images:,} {form} transcoded"


def _vocabulary(name: str, description: Description | None, statistics: Json) -> Iterator[str]:
    ids = description if isinstance(description, Ids) else None
    if ids is not None and ids.hash_buckets is not None:
        yield f"{ids.hash_buckets:,} hash buckets"
    elif "words" not in statistics:
        if ids is not None and ids.vocabulary is not None:  # a tokenizer's model, or another feature's vocabulary
            yield f"{ids.vocabulary_size:,} ids"
            file = PurePosixPath(ids.vocabulary).name
            if file != vocabulary_name(name):
                yield f"shared with {file.removesuffix(vocabulary_name(''))}"
    elif statistics.get("known_tokens") is None:
        yield f"{statistics['words']:,} given"
    elif not statistics["distinct"]:
        yield "no words"
    else:
        yield f"{statistics['words']:,} of {statistics['distinct']:,} distinct"
        if statistics["known_tokens"] < statistics["tokens"]:
            yield f"{statistics['known_tokens'] / statistics['tokens']:.1%} of {statistics['tokens']:,} known"


def _numbers(value: float | Sequence[float]) -> str:
    return " ".join(f"{number:.6g}" for number in (value if isinstance(value, Sequence) else [value]))
