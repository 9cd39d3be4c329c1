"""Recognizes arrays of rows, and an image's numbers in a cell, a list or numbered columns."""

import math
import posixpath
import re
from collections.abc import Mapping, Sequence

import numpy as np

from recordmill.pipeline.dataset.placement import SPLITS
from recordmill.pipeline.init.dialect import LEAST_SIDE, square
from recordmill.pipeline.init.doubts import Doubt, UnknownDataError
from recordmill.pipeline.init.guess import Choice, Guess, feature
from recordmill.pipeline.init.recognize import Recognized
from recordmill.pipeline.init.sample import SourceSample
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.encoded import uncompressed_name
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.arrays import NPY, NPZ, ArrayInFile, arrays_in
from recordmill.pipeline.sources.formats.image_fields import IMAGE, LABEL
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.naming import ARRAY_LABELS, PICTURES, by_split
from recordmill.pipeline.sources.paths import is_image, note
from recordmill.transforms.base.arrays import ArrayLayout
from recordmill.transforms.base.columns import ColumnType

IS_ARRAYS = re.compile(r".*([.-]idx\d-?ubyte|\.idx|\.np[yz])")
MOST_FILES = 16  # more `.npy` files are an image each
SAVE = "save both in one file by `numpy.savez(FILE, image=…, label=…)`"
ROWS = 100  # rows to look at
NUMBER = re.compile(r"[\d.]+")
CELL = re.compile(r"([\s,\[]*+\d++(\.\d*+)?+(?![^\s,\]])[\s\]]*+)++")


def recognize_arrays(files: Files, path: str, in_folder: Sequence[FileInfo] | None) -> Recognized | None:
    """Finds the sources of a `.npz`, or of a folder of idx, or of few `.npy` with labels; None without any."""
    every = files.match(escape(path)) if in_folder is None else in_folder
    called = [(uncompressed_name(file.path), file) for file in reversed(every)]  # a `.gz` first
    named = {name: file for name, file in called if IS_ARRAYS.fullmatch(name)}
    are_others = len({posixpath.dirname(name) for name in named}) > 1 or any(is_image(file.path) for file in every)
    packed = [file for name, file in named.items() if name.endswith(NPZ)]
    found = [] if are_others or len(named) > MOST_FILES else packed[-1:] or sorted(named.values())
    folder, arrays = posixpath.dirname(found[0].path) if found else "", dict[str, ArrayInFile]()
    for file in found:
        arrays |= arrays_in(files, folder, file._replace(path=posixpath.basename(file.path)))
    faults = {name: each.fault for name, each in arrays.items() if each.fault}
    arrays = {name: each for name, each in arrays.items() if not each.fault}
    if faults and not arrays and found[0].path.endswith(NPZ):
        raise UnknownDataError(f"{found[0].path}: no array can be read: {'; '.join(map(': '.join, faults.items()))}")
    needed = "If you need it, save it as numbers or texts"
    doubts = [Doubt(f"array {name}", f"left out: {fault}", needed) for name, fault in faults.items()]
    parts = by_split(arrays, _words).items()
    columns = {split: _columns({name: arrays[name] for name in names}) for split, names in parts}
    if not found or (found[0].path.endswith(NPY) and not all(LABEL in each for each in columns.values())):
        _check_rows(arrays)
        return None
    path = found[0].path if found[0].path.endswith(NPZ) else folder
    alike = {"format": "arrays", "path": path}
    sources = [{**alike, "columns": each, "split": split} for split, each in columns.items()]
    left = [name for name in arrays if not any(name in each.values() for each in columns.values())]
    if any("emnist" in name for name in arrays):
        doubts.append(Doubt("EMNIST", "its images have rows for columns", "Save `images.transpose(0, 2, 1)` of each"))
    for name in left:
        if ARRAY_LABELS & {*_words(name)} and not any(LABEL in each for each in columns.values()):
            what = f"left out: it has {count(arrays[name].shape[0], 'row')}, images have others"
            doubts.append(Doubt(f"array {name}", what, "Make them equal"))
    left += [file.path.rpartition("/")[2] for file in every if file not in found]
    packed = [file for file in every if file.path.endswith(NPZ)]
    if len(packed) > 1:
        what = f"one of {len(packed)} `.npz`; the others are left out"
        doubts.append(Doubt(posixpath.basename(path), what, f"Images and labels: {SAVE}"))
    why = {"format": f"{count(len(arrays), 'array')}, whose first side is rows"}
    return Recognized(sources, found, True, why, note("left out", left), doubts=doubts)


def _check_rows(arrays: Mapping[str, ArrayInFile]) -> None:
    """Checks that `.npy` files are an image each. Raises: UnknownDataError: rows of as many numbers."""
    shapes = {name: array.shape for name, array in arrays.items() if len(array.shape) == 2}
    widths = {numbers for _, numbers in shapes.values()}
    for name, (rows, numbers) in shapes.items():
        are_pixels = len(widths) == 1 and square(numbers)
        if are_pixels and (len({*shapes.values()}) > 1 or not 1 / 4 < rows / numbers < 4):
            raise UnknownDataError(f"{name} holds {rows:,} rows of {numbers:,} numbers, without labels: {SAVE}")


def _words(name: str) -> list[str]:
    return re.findall("[a-z0-9]+", name.lower().replace("t10k", "test"))


def _columns(arrays: dict[str, ArrayInFile]) -> dict[str, str]:
    """Names the columns of arrays with as many rows as the largest: image, label, or as the array."""
    rows = max(arrays.values(), key=lambda each: each.row_bytes).shape[0] if arrays else 0
    columns = dict[str, str]()
    for name, array in arrays.items():
        numbers, words = math.prod(array.shape[1:]), _words(name)
        are_pixels = (numbers >= LEAST_SIDE**2 and len(array.shape) > 2) or square(numbers)
        role = IMAGE if are_pixels else LABEL if numbers == 1 and ARRAY_LABELS & {*words} else ""
        own = "_".join(word for word in words if word not in SPLITS)
        if array.shape[0] == rows:
            columns[role if role and role not in columns else own] = name
    return columns


def guess_pixels(sample: SourceSample, name: str) -> Guess | None:
    """Guesses whole numbers of 0 to 255, as many in each row as a square image has, as an image."""
    reading = sample.read(name, ColumnType.TEXT)
    are_numbers = all(map(CELL.fullmatch, reading.values[:ROWS]))
    if not are_numbers and "*" not in name:
        return None
    rows: list[list[str]] = [NUMBER.findall(text) for text in reading.values[:ROWS]]
    if not reading.values:
        reading = sample.read(name, ColumnType.NUMBER, many=True)
        rows = reading.values[:ROWS]
    sizes = [len(row) for row in rows]
    size = max(sizes, key=sizes.count, default=0)
    if size < LEAST_SIDE**2:
        return None
    numbers = np.array([row for row in rows if len(row) == size and are_numbers], np.float64)
    shape = square(size) if are_numbers else None
    ways = [shape, [1, *shape]] if shape and len(shape) == 2 else []
    if shape and len(shape) == 3:  # of the least differences of neighbours
        ways = [shape, shape[::-1]]
        ways.sort(key=lambda way: float(np.abs(np.diff(numbers.reshape(-1, *way), axis=2)).mean()))
    dtype = ""  # of numbers that only a column's name could make pixels
    if shape:
        most, are_whole = numbers.max(), not (numbers % 1).any()
        if numbers.min() >= 0 and (PICTURES.search(name) or (are_whole and 1 < most <= 255)):
            kinds = (kind for kind, end in (("uint8", 255), ("uint16", 65_535)) if are_whole and most <= end)
            dtype = next(kinds, "float32")
    if shape is None or not dtype:
        return feature(name, "array", "numbered columns", reading, shape=([size], "")) if "*" in name else None
    if "." in str(rows[0]) and reading.values and isinstance(reading.values[0], str):
        dtype = "float32"
    fits = [sample.read(name, ColumnType.IMAGE, array=ArrayLayout(dtype, (*way,))).fit for way in ways]
    shape = ways[fits.index(max(fits))]  # nested numbers fit one way, others each
    side, channels = max(shape), 1 if len(shape) == 2 else min(shape)
    order = "by the smoother of this and the other order of the channels" if channels == 3 else ""
    options: dict[str, Choice] = {"shape": (shape, order), "size": ([side, side], ""), "channels": (channels, "")}
    if dtype != "uint8":
        options |= {"dtype": (dtype, "as they are written"), "normalize": ("none", "or `zero_one`, with `range`")}
    return feature(name, "image", f"{count(size, 'number')} a row are one image", reading, **options)
