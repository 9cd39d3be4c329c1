r"""Arrays of numbers of one shape, where the first side may vary by row: latents, spectrograms, masks.

Records, `.npy` files and lists become the same bytes: little-endian, in C order. A `.npy` header is checked before
anything of its size is allocated, and no pickle is ever loaded.

>>> ArrayLayout("uint8", (2, 2)).encode(np.array([[1, 2], [3, 4]]))
b'\x01\x02\x03\x04'
"""

import importlib
import io
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.json_values import Count
from recordmill.pipeline.safe_text import cut
from recordmill.transforms.base.description import Decoding, Description, Json, Stored, left_out, tfds_tensor

DTYPES = ("uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32")
MAGIC = b"\x93NUMPY"  # the beginning of a `.npy` file
MOST_HEADER = 4096  # bytes of a `.npy` header at most; NumPy writes 118
HEAD_BYTES = MOST_HEADER + 12
MOST_SIDES, MOST_NUMBERS = 32, 1 << 60  # NumPy's limits, also where a side is 0
_DESCR = re.compile(r"'descr':\s*'([^']*)'")
_FORTRAN = re.compile(r"'fortran_order':\s*(True|False)")
_SHAPE = re.compile(r"'shape':\s*\(([\d, ]*)\)")
_NUMBERS = re.compile(r"[<>|=]?(?:[ui][1248]|f[248])")
_READ = re.compile(rf"{_NUMBERS.pattern}|\|b1|[<|]V2|\|S[1-9]\d{{0,6}}|[<>=]U[1-9]\d{{0,6}}")
_BFLOAT16 = re.compile(r"[<|]V2")  # as ml_dtypes writes it


class ArrayError(Exception):
    """A value does not fit the layout; the message says why."""


class Npy(NamedTuple):
    """The header of a `.npy` file."""

    descr: str  # the type of the numbers or texts, such as `<f4`: one that NumPy knows
    shape: tuple[int, ...]
    is_fortran: bool
    start: int  # the offset of the first number, in bytes


def numpy_dtype(name: str, otherwise: str = "") -> "np.dtype[Any]":
    """Returns the dtype of a name, `bfloat16` included. Raises: DatasetError: unknown, or without ml_dtypes."""
    if name not in (*DTYPES, "uint16", "float64"):
        raise DatasetError(f"the dtype {cut(repr(name))} is none of {', '.join(DTYPES)}")
    if name != "bfloat16":
        return np.dtype(name)
    try:
        return np.dtype(importlib.import_module("ml_dtypes").bfloat16)
    except ModuleNotFoundError:
        raise DatasetError(f"dtype='bfloat16' needs the package ml_dtypes: pip install ml_dtypes{otherwise}") from None


@dataclass(frozen=True)
class ArrayLayout:
    """The dtype and shape of a feature's arrays."""

    dtype: str  # one of `DTYPES`
    shape: tuple[int | None, ...]  # a first side of None varies by row

    @property
    def is_ragged(self) -> bool:
        """Whether the first side varies by row."""
        return self.shape[0] is None

    @property
    def inner(self) -> tuple[int, ...]:
        """The sides shared by all rows."""
        return tuple(side for side in self.shape if side is not None)

    @property
    def numpy(self) -> "np.dtype[Any]":
        """The little-endian dtype. Raises: DatasetError: bfloat16 without ml_dtypes."""
        return numpy_dtype(self.dtype).newbyteorder("<")

    @property
    def holds_integers(self) -> bool:
        return "int" in self.dtype

    @property
    def unit(self) -> int:
        """The bytes of the shared sides: for a fixed shape, of the whole array."""
        size = {"uint8": 1, "int32": 4, "float32": 4, "int64": 8}.get(self.dtype, 2)
        return size * math.prod(self.inner)

    def __str__(self) -> str:
        return f"{self.dtype} [{', '.join('any' if side is None else str(side) for side in self.shape)}]"

    def fault(self, size: int) -> str | None:
        """Says why this many stored bytes are not an array, or returns None."""
        if self.is_ragged:
            return f"{size:,} bytes, not a multiple of the {self.unit:,} of an entry" if size % self.unit else None
        return None if size == self.unit else f"{size:,} bytes; an array of {self} has {self.unit:,}"

    def decode(self, data: bytes | memoryview) -> npt.NDArray[Any]:
        """Returns a view of stored bytes as an array. Raises: ValueError: see `fault`."""
        return np.frombuffer(data, self.numpy).reshape([-1 if side is None else side for side in self.shape])

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether arrays of this shape are accepted: the layout's shape, or a flat list of all values."""
        if len(shape) == 1:
            return shape[0] % math.prod(self.inner) == 0 if self.is_ragged else shape[0] == math.prod(self.inner)
        sides = zip(self.shape, shape, strict=False)
        return len(shape) == len(self.shape) and all(wanted in (None, side) for wanted, side in sides)

    def encode(self, array: npt.NDArray[Any]) -> bytes:
        """Returns an array's bytes. Raises: ArrayError: wrong shape or type, or a number out of range."""
        values, bad = self.numbers(array)
        if not self.fits(array.shape):
            raise ArrayError(self.wrong_shape())
        if bad.any():
            raise ArrayError(self.out_of_range)
        return values.tobytes()

    def numbers(self, array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Converts numbers of any shape, and marks those out of the dtype's range. Raises: ArrayError: wrong type."""
        if array.dtype == self.numpy:
            return np.ascontiguousarray(array), ~np.isfinite(array)
        if not array.size:
            return np.zeros(array.shape, self.numpy), np.zeros(array.shape, bool)
        if array.dtype.kind not in ("iu" if self.holds_integers else "iuf"):
            raise ArrayError(self.wrong_type(f"the type {array.dtype}"))
        if self.holds_integers:
            limits = np.iinfo(self.numpy)
            bad = (array < limits.min) | (array > limits.max)
            return array.astype(self.numpy), bad
        with np.errstate(over="ignore"):
            floats = array.astype(np.float64) if array.dtype.kind != "f" else array
            values = floats.astype(self.numpy)
        return values, ~np.isfinite(values)

    @property
    def out_of_range(self) -> str:
        """The message about a number out of the dtype's range."""
        if self.holds_integers:
            limits = np.iinfo(self.numpy)
            return f"a number is beyond {self.dtype}, {limits.min} to {limits.max}"
        return f"a number is not finite, or beyond the range of {self.dtype}: write another, such as 0"

    def wrong_type(self, found: str) -> str:
        is_rounded = self.holds_integers and "float" in found
        kind, hint = ("whole numbers", ": `dtype: float32` keeps them") if is_rounded else ("numbers", "")
        return f"wanted an array of {kind}, found {found}{hint}"

    def wrong_shape(self) -> str:
        return f"wanted an array of {self}, found one of another shape"

    def from_npy(self, data: bytes) -> bytes:
        """Returns the array bytes of a `.npy` file. Raises: ArrayError: not a `.npy` file, or another array."""
        descr, shape, is_fortran, start = header_of(data)
        if _BFLOAT16.fullmatch(descr) and self.dtype == "bfloat16":
            dtype = self.numpy
        elif descr == "|b1":
            dtype = np.dtype(np.uint8)  # 0 and 1
        elif _NUMBERS.fullmatch(descr):
            dtype = np.dtype(descr)
        else:
            raise ArrayError(self.wrong_type(f"a .npy file of something else, {descr[:20]}"))
        if not self.fits(shape):
            raise ArrayError(self.wrong_shape())
        if len(data) - start != math.prod(shape) * dtype.itemsize:
            stated = f"its header states {math.prod(shape) * dtype.itemsize:,}"
            raise ArrayError(f"the .npy file holds {len(data) - start:,} bytes of numbers, {stated}")
        array = np.frombuffer(data, dtype, offset=start).reshape(shape, order="F" if is_fortran else "C")
        return self.encode(array)


def header_of(data: bytes) -> Npy:
    """Reads the header of a `.npy` file. Raises: ArrayError."""
    if not data.startswith(MAGIC) or len(data) < 12:
        raise ArrayError("wanted an array of numbers, found bytes of another format than .npy")
    start = 12 if data[6] > 1 else 10
    length = int.from_bytes(data[8:start], "little")
    if length > min(MOST_HEADER, len(data) - start):
        raise ArrayError("the .npy file's header is longer than the file, or than NumPy writes")
    text = data[start : start + length].decode("latin-1")
    numbers, order, shape = _DESCR.search(text), _FORTRAN.search(text), _SHAPE.search(text)
    other = "wanted an array of numbers, found a .npy file of something else"
    if order is None or shape is None or numbers is None or "O" in numbers[1]:
        raise ArrayError(f"{other}: no Python object is loaded")
    if not _READ.fullmatch(numbers[1]):  # NumPy's parser divides by the zero of `M8[s/0]`, which ends the process
        raise ArrayError(f"{other}, {cut(repr(numbers[1]), 40)}: its numbers are none")
    sides = tuple(int(side[:20]) for side in shape[1].replace(",", " ").split())
    if len(sides) > MOST_SIDES or math.prod(max(1, side) for side in sides) > MOST_NUMBERS:
        raise ArrayError(f"the .npy file's array has the shape {cut(str(list(sides)), 60)}, too large for NumPy")
    return Npy(numbers[1], sides, order[1] == "True", start + length)


def head(descr: str, shape: tuple[int, ...]) -> bytes:
    """Returns the header of a `.npy` file in C order."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def npy_numbers(data: bytes, dtype: str) -> npt.NDArray[Any]:
    """Returns the numbers of a `.npy` file as a dtype, in its shape. Raises: ArrayError: other numbers."""
    layout = ArrayLayout(dtype, header_of(data).shape or (1,))
    return layout.decode(layout.from_npy(data))


@dataclass(frozen=True, kw_only=True)
class ArrayDescription(Description):
    """One array a row, stored as bytes: little-endian, in C order."""

    kind: ClassVar[str] = "array"
    length: ClassVar[str] = "varying"  # the entries along the first side; only ragged arrays are padded
    stored: str = "bytes"
    dtype: str
    shape: tuple[Count | None, ...]
    max_length: Count | None = left_out(None)
    optional: bool = left_out(False)

    def __post_init__(self) -> None:
        """Refuses an unknown dtype or an impossible shape. Raises: DatasetError."""
        if self.dtype not in DTYPES:
            shown = cut(repr(self.dtype), 50)
            raise DatasetError(f"an array's `dtype` is {shown} in dataset.json, this release knows {', '.join(DTYPES)}")
        if not self.shape or None in self.shape[1:] or 0 in self.shape:
            shown = cut(repr(list(self.shape)), 50)
            raise DatasetError(f"dataset.json states arrays of shape {shown}: it is damaged, copy the version again")

    @property
    def layout(self) -> ArrayLayout:
        return ArrayLayout(self.dtype, self.shape)

    @property
    def blank(self) -> bytes:
        return bytes(self.layout.unit)

    @classmethod
    def parts_of(cls, description: Json) -> dict[str, Stored]:
        """Returns the bytes; an optional fixed shape also stores 1 for a missing array, whose bytes are zeros."""
        parts = {"": Stored("bytes")}
        may_lack = description.get("optional") and description["shape"][0] is not None
        return parts | {"missing": Stored("int64")} if may_lack else parts

    def type_words(self) -> str:
        most = "any" if self.max_length is None else f"at most {self.max_length:,}"
        return f"{self.dtype} {'×'.join(most if side is None else str(side) for side in self.shape)}"

    @property
    def decoded(self) -> tuple[str, int]:
        return {"float16": "float32", "bfloat16": "float32"}.get(self.dtype, self.dtype), len(self.shape)

    def decode(self, stored: Any, decoding: Decoding) -> Any:
        return self.layout.decode(bytes(stored)).tolist()

    def tfds(self) -> dict[str, Any]:
        """Describes a `Tensor` as bytes; ragged arrays, which TensorFlow Datasets cannot read, as plain bytes."""
        if self.layout.is_ragged:
            return super().tfds()
        return tfds_tensor(self.dtype, self.layout.inner, "bytes")

    def fault(self, stored: Any) -> str | None:
        return self.layout.fault(len(stored))
