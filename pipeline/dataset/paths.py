"""Paths of files: access confined to a version's folder, plain names, and atomic writes.

Manifests are untrusted. Their paths are relative, of plain parts, and still lead into the folder after following
symbolic links; the folder itself may be a link. Refused files are not opened. Datasets, splits and features have plain
names, used in file names. A version's or span's name is its folder's.

>>> check_inner("../../etc/passwd")
Traceback (most recent call last):
...
pipeline.errors.DatasetError: the path '../../etc/passwd' leaves the version's folder
>>> is_folder_name("2026-11-20"), is_folder_name("2026/11"), is_folder_name("..")
(True, False, False)
"""

import errno
import hashlib
import os
import re
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Annotated, BinaryIO, Protocol, TypeAlias

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import cut, printable

FORBIDDEN = frozenset("\\:\n\t")  # of drives, schemes and lines; builds do not write them into file names
NO_PARTS = frozenset({"", ".", ".."})  # not names of files or folders
MOST_PATH, MOST_NAME = 4096, 255  # bytes: Linux's limits
ADVICE = "copy the version again, or build again"
ADOPT = "adopt the files again"  # the remedy for files that somebody else may change
OF_URLS = frozenset("%?#")  # special in some stores' URLs: `%2e%2e` leads up
NAME = r"[A-Za-z][A-Za-z0-9_]*"
HISTORY_FILE = "history.jsonl"  # in the dataset's folder; `pipeline.versions.history`
MOST_CHARACTERS = 100  # the longest name of a dataset, a split, a feature, a version or a span


class Remote(Protocol):
    """A folder or file at a URL: the methods of `RemotePath` used here."""

    def __truediv__(self, inner: str, /) -> "Remote": ...
    def is_file(self) -> bool:
        """Whether it is a file."""

    def is_dir(self) -> bool:
        """Whether it is a folder."""

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns a file's first bytes, at most `most`. Raises: DatasetError."""


Location: TypeAlias = Path | Remote  # a folder or a file


def check_inner(path: str) -> str:
    """Returns a relative path that stays in its folder, judged by its text.

    Raises: DatasetError: it is empty, absolute, a URL, or too long, or holds `..`, `~`, a backslash or control
    characters.
    """
    parts = path.split("/")
    plain = FORBIDDEN.isdisjoint(path) and printable(path) == path and not path.startswith("~")
    if not plain or not NO_PARTS.isdisjoint(parts):
        raise DatasetError(f"the path {cut(repr(path))} leaves the version's folder")
    if len(path.encode()) > MOST_PATH or any(len(part.encode()) > MOST_NAME for part in parts):
        raise DatasetError(f"the path {cut(repr(path))} has {len(path):,} characters: too long for a file system")
    return path


def locate(folder: str, path: str) -> str:
    """Returns a listed local file's path, links resolved, maybe missing. Raises: DatasetError: it leaves `folder`."""
    full = os.path.join(folder, check_inner(path))
    parts = path.split("/")
    if not any(os.path.islink(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts) + 1)):
        return full
    real = os.path.realpath(full)
    if not real.startswith(os.path.join(os.path.realpath(folder), "")):
        raise DatasetError(f"{full} is a link that leaves the version's folder: replace it by a copy of its target")
    return real


def real_place(root: str, path: str) -> str:
    """Returns the path of an adopted file below a root without links (`file_names.allow`), its own links resolved.

    Raises: DatasetError: by its text or by a link, swapped meanwhile too, `path` leaves `root`, or `root` its place.
    """
    if os.path.realpath(root) != root:
        raise DatasetError(f"{root} is behind a link now: {ADOPT}")
    return locate(root, path)


def path_within(folder: str | Path, path: str) -> Path:
    """Returns the path to write an untrusted name to, and makes its folders. Raises: DatasetError: it leaves."""
    full = Path(locate(str(folder), path))
    full.parent.mkdir(parents=True, exist_ok=True)
    return full


def check_place(folder: str, path: str) -> None:
    """Raises: DatasetError: a listed file leaves its version's folder, local or a URL."""
    if "://" not in folder:
        locate(folder, path)
    elif OF_URLS & set(check_inner(path)):
        raise DatasetError(f"the path {cut(repr(path))} is not a file's name at {folder}")


def open_file(path: str) -> BufferedReader:
    """Opens a regular file for reading. Raises: OSError: it is missing, unreadable, or a pipe, device or folder."""
    file = open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK))
    try:
        _check_regular(path, os.fstat(file.fileno()))
    except OSError:
        file.close()
        raise
    return file


def file_bytes(path: str) -> int:
    """Returns the size of a regular file in bytes. Raises: OSError as `open_file`."""
    state = os.stat(path)
    _check_regular(path, state)
    return state.st_size


def seen_as(state: os.stat_result) -> str:
    """Returns the text that proves to this machine, with the size, that a local file's content is unchanged."""
    return repr((state.st_ctime, state.st_ino & 2**63 - 1))  # an int64


def has_one_name(state: os.stat_result) -> bool:
    """Whether a regular file has a single name: writing it does not change another file."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink <= 1


def _check_regular(path: str, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ENXIO, "it is a pipe, a device or a folder, not a file", path)


def read_inner(folder: Location, path: str, most: int | None = None) -> bytes:
    """Reads a file of a version's folder. Raises: DatasetError: outside, irregular, above `most` bytes, unreadable."""
    if isinstance(folder, Path):
        try:
            with open_file(locate(str(folder), path)) as file:
                data = file.read(-1 if most is None else most + 1)
        except OSError as error:
            raise DatasetError(f"{folder / path} cannot be read ({error.strerror}): {ADVICE}") from error
    else:
        check_place(str(folder), path)
        data = (folder / path).read_bytes(None if most is None else most + 1)
    if most is not None and len(data) > most:
        raise DatasetError(f"{folder / path} is larger than {most:,} bytes, the limit for this file: {ADVICE}")
    return data


def read_checked(folder: Location, path: str, sha256: str, most: int | None = None) -> bytes:
    """Reads a file (`read_inner`) and compares its SHA-256 in hex. Raises: DatasetError: also if it differs."""
    data = read_inner(folder, path, most)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DatasetError(f"{folder / path} was changed: copy the version again, or remove the file and build again")
    return data


def is_name(name: str) -> bool:
    """Whether the name is valid for a dataset, a split or a feature."""
    return len(name) <= MOST_CHARACTERS and re.fullmatch(NAME, name) is not None


def check_name(what: str, name: str) -> str:
    """Returns the name of a dataset, a split or a feature. Raises: DatasetError: it is invalid."""
    if is_name(name):
        return name
    rule = f"use a letter, then letters, digits and underscores, at most {MOST_CHARACTERS} in all"
    raise DatasetError(f"{cut(repr(name))} is not a valid name of a {what}: {rule}")


def is_folder_name(name: str) -> bool:
    """Whether the name is valid for a version or a span, and its folder."""
    try:
        check_inner(name[: MOST_CHARACTERS + 1])
    except DatasetError:
        return False
    return "/" not in name and not name.startswith(".") and len(name) <= MOST_CHARACTERS


def check_folder_name(what: str, name: str) -> str:
    """Returns the name of a version or a span. Raises: DatasetError: it is invalid for a folder."""
    if not is_folder_name(name):
        rule = f"a folder's name, at most {MOST_CHARACTERS} plain characters, without a dot at its start"
        raise DatasetError(f"{cut(repr(name))} is not a valid {what}: {rule}")
    return name


def check_sha256(digest: str) -> str:
    """Returns a SHA-256 in hex. Raises: DatasetError: it is invalid."""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise DatasetError(f"{cut(repr(digest))} is not a SHA-256: 64 digits 0 to 9 and a to f")
    return digest


def check_time(time: str) -> str:
    """Returns a manifest's time in UTC. Raises: DatasetError: it is invalid."""
    with suppress(ValueError):
        if f"{datetime.fromisoformat(time):%Y-%m-%dT%H:%M:%SZ}" == time:
            return time
    raise DatasetError(f"{cut(repr(time))} is not a time like 2026-11-20T12:00:00Z")


# Types of a manifest's texts, for `json_values.read_as`.
InnerPath: TypeAlias = Annotated[str, check_inner]
DatasetName: TypeAlias = Annotated[str, partial(check_name, "dataset")]
FeatureName: TypeAlias = Annotated[str, partial(check_name, "feature")]
SplitName: TypeAlias = Annotated[str, partial(check_name, "split")]
SpanName: TypeAlias = Annotated[str, partial(check_folder_name, "span")]
VersionName: TypeAlias = Annotated[str, partial(check_folder_name, "version")]
Sha256: TypeAlias = Annotated[str, check_sha256]
Time: TypeAlias = Annotated[str, check_time]


def user_cache() -> str:
    """Returns the absolute path of Recordmill's cache folder of the user (XDG Base Directory)."""
    return os.path.abspath(f"{os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')}/recordmill")


def attempt_name(prefix: str) -> str:
    """Returns a unique name."""
    return f"{prefix}.{uuid.uuid4().hex}"


def is_unfinished(path: str) -> bool:
    """Whether a file has a temporary name of `replacing`."""
    return re.search(r"\.[0-9a-f]{32}$", path) is not None


@contextmanager
def replacing(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path`, which replaces it at the end of the block.

    A link at `path` is replaced, not followed. After an error the temporary file is removed. `durable` fsyncs it.
    Raises: OSError: it cannot be written, or `path` is a device, a pipe or a folder, such as `/dev/stdout`.
    """
    with suppress(FileNotFoundError):
        file_bytes(str(path))
    temporary = attempt_name(str(path))
    try:
        with open(temporary, "xb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def write_atomically(path: str | Path, data: bytes) -> None:
    """Writes a file by `replacing`; an error names it."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:  # it may name the temporary file, or for a full disk none
        error.filename = str(path)
        raise


def sync(path: str | Path) -> None:
    """Fsyncs a file's content, or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
