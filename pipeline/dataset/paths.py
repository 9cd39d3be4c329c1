"""Paths of files: access to a version's in its own folder alone, plain names, and writing files whole or not at all.

A manifest may come from anywhere. A path in it is relative, of plain parts; and after every symbolic link is followed
it still leads into the folder. The folder itself may be reached through a link. A refused file is not read at all.

A dataset, a split and a feature have plain names, which are parts of file names. A version and a span have a folder. A
class may have any name, so its folder is only called after it.

>>> check_inner("transform_fn/assets/text.vocabulary.txt")
'transform_fn/assets/text.vocabulary.txt'
>>> check_inner("../../etc/passwd")
Traceback (most recent call last):
...
pipeline.errors.DatasetError: the path '../../etc/passwd' leaves the version's folder
>>> is_folder_name("2026-11-20"), is_folder_name("2026/11"), is_folder_name("..")
(True, False, False)
>>> safe_name("../etc/passwd"), safe_name("NUL.txt")
('_etc_passwd', '_NUL.txt')
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

FORBIDDEN = frozenset("\\:\n\t")
"""Characters of drives, schemes and lines; a build writes none of them into a file's name."""
NO_PARTS = frozenset({"", ".", ".."})  # parts of a path that name no file or folder in the one before
MOST_PATH, MOST_NAME = 4096, 255  # bytes: Linux' own limits
ADVICE = "copy the version again, or build again"
OF_URLS = frozenset("%?#")  # characters with a meaning in some stores' URLs: `%2e%2e` is a way up


class Remote(Protocol):
    """A folder or a file at a URL: the methods of `RemotePath` that are used here."""

    def __truediv__(self, inner: str, /) -> "Remote": ...
    def is_file(self) -> bool:
        """Whether it is a file."""

    def is_dir(self) -> bool:
        """Whether it is a folder."""

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns a file's first bytes, at most `most`. Raises: DatasetError."""


Location: TypeAlias = Path | Remote
"""A folder or a file, local or remote."""


def check_inner(path: str) -> str:
    """Refuses the path of a file that is not below the folder it is relative to, by its text alone.

    Raises:
        DatasetError: it is empty, absolute, a URL, or holds `..`, `~`, a backslash or unprintable characters, or is
            longer than a file's path may be.
    """
    parts = path.split("/")
    plain = FORBIDDEN.isdisjoint(path) and printable(path) == path and not path.startswith("~")
    if not plain or not NO_PARTS.isdisjoint(parts):
        raise DatasetError(f"the path {cut(repr(path))} leaves the version's folder")
    if len(path.encode()) > MOST_PATH or any(len(part.encode()) > MOST_NAME for part in parts):
        raise DatasetError(f"the path {cut(repr(path))} has {len(path):,} characters: no file's name is so long")
    return path


def locate(folder: str, path: str) -> str:
    """Returns the path of a local file or folder that a version lists, links followed; it need not be there.

    Raises:
        DatasetError: `path` leaves `folder`, or a symbolic link in it does.
    """
    full = os.path.join(folder, check_inner(path))
    parts = path.split("/")
    if not any(os.path.islink(os.path.join(folder, *parts[:depth])) for depth in range(1, len(parts) + 1)):
        return full
    real = os.path.realpath(full)
    if not real.startswith(os.path.join(os.path.realpath(folder), "")):
        raise DatasetError(f"{full} is a link that leaves the version's folder: copy there what it leads to")
    return real


def path_within(folder: str | Path, path: str) -> Path:
    """Returns where to write a file below a local folder, and makes the folders on its way.

    Whatever writes below a folder by names that may come from anywhere goes through here.

    Raises:
        DatasetError: `path` leaves `folder`, or a symbolic link in it does.
    """
    full = Path(locate(str(folder), path))
    full.parent.mkdir(parents=True, exist_ok=True)
    return full


def check_place(folder: str, path: str) -> None:
    """Refuses a listed file that leaves its version's folder, which is local or a URL. Raises: DatasetError."""
    if "://" not in folder:
        locate(folder, path)
    elif OF_URLS & set(check_inner(path)):
        raise DatasetError(f"the path {cut(repr(path))} is no name of a file at {folder}")


def open_file(path: str) -> BufferedReader:
    """Opens a regular file for reading; a pipe is not waited for, and no byte is read of it.

    Raises:
        OSError: it is missing, cannot be read, or is a pipe, a device or a folder.
    """
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


def has_one_name(state: os.stat_result) -> bool:
    """Whether a regular file has no second name elsewhere: what is written into it changes no other."""
    return stat.S_ISREG(state.st_mode) and state.st_nlink <= 1


def _check_regular(path: str, state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.ENXIO, "it is a pipe, a device or a folder, no file", path)


def read_inner(folder: Location, path: str, most: int | None = None) -> bytes:
    """Reads a whole file that a version lists.

    Args:
        folder: the version's folder.
        path: relative to it.
        most: bytes; a larger file is refused.

    Raises:
        DatasetError: the file leaves the folder, is no file, is too large, or cannot be read.
    """
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
        raise DatasetError(f"{folder / path} is larger than {most:,} bytes, which it never is: it is no {path}")
    return data


def read_checked(folder: Location, path: str, sha256: str, most: int | None = None) -> bytes:
    """Reads a whole file that a version lists, as `read_inner`, and compares its SHA-256, given in hexadecimal.

    Raises:
        DatasetError: as `read_inner`, or the file is not what it was.
    """
    data = read_inner(folder, path, most)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise DatasetError(f"{folder / path} is not what it was")
    return data


NAME = r"[A-Za-z][A-Za-z0-9_]*"
MOST_CHARACTERS = 100  # the longest name of a dataset, a split, a feature, a version or a span
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d) *(\.|$)", re.IGNORECASE)
"""Names that Windows keeps for devices, in every folder and whatever follows a dot."""


def is_name(name: str) -> bool:
    """Whether a dataset, a split or a feature may have this name."""
    return len(name) <= MOST_CHARACTERS and re.fullmatch(NAME, name) is not None


def check_name(what: str, name: str) -> str:
    """Returns the name of a dataset, a split or a feature. Raises: DatasetError: nothing may have it."""
    if not is_name(name):
        rule = f"a letter, then letters, digits and underscores, {MOST_CHARACTERS} at most"
        raise DatasetError(f"{cut(repr(name))} is no name of a {what}: {rule}")
    return name


def is_folder_name(name: str) -> bool:
    """Whether a version or a span may have this name, which is a folder's, too."""
    try:
        check_inner(name[: MOST_CHARACTERS + 1])
    except DatasetError:
        return False
    return "/" not in name and not name.startswith(".") and len(name) <= MOST_CHARACTERS


def check_folder_name(what: str, name: str) -> str:
    """Returns the name of a version or a span. Raises: DatasetError: no folder may have it."""
    if not is_folder_name(name):
        rule = f"its name is that of one folder, of {MOST_CHARACTERS} plain characters at most, and begins with no dot"
        raise DatasetError(f"{cut(repr(name))} is no {what}: {rule}")
    return name


def check_sha256(digest: str) -> str:
    """Returns a SHA-256 in hexadecimal. Raises: DatasetError: the text is something else."""
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise DatasetError(f"{cut(repr(digest))} is no SHA-256, which has 64 digits from 0 to 9 and a to f")
    return digest


def check_time(time: str) -> str:
    """Returns a time as manifests hold it, in UTC. Raises: DatasetError: the text is something else."""
    with suppress(ValueError):
        if f"{datetime.fromisoformat(time):%Y-%m-%dT%H:%M:%SZ}" == time:
            return time
    raise DatasetError(f"{cut(repr(time))} is no time like 2026-11-20T12:00:00Z")


# The forms of a manifest's texts, for `json_values.read_as`.
InnerPath: TypeAlias = Annotated[str, check_inner]
DatasetName: TypeAlias = Annotated[str, partial(check_name, "dataset")]
FeatureName: TypeAlias = Annotated[str, partial(check_name, "feature")]
SplitName: TypeAlias = Annotated[str, partial(check_name, "split")]
SpanName: TypeAlias = Annotated[str, partial(check_folder_name, "span")]
VersionName: TypeAlias = Annotated[str, partial(check_folder_name, "version")]
Sha256: TypeAlias = Annotated[str, check_sha256]
Time: TypeAlias = Annotated[str, check_time]


def safe_name(text: str) -> str:
    """Makes any text the name of one file or folder, of 200 bytes at most, that no file system and no glob misreads."""
    plain = re.sub(r"[^\w. -]+", "_", text).strip(". ")[:100]
    short = plain.encode()[:199].decode(errors="ignore") or "_"  # a name has 255 bytes at most, with what follows it
    return f"_{short}" if DEVICES.match(short) else short


def user_cache() -> str:
    """The absolute path of Recordmill's folder in the user's for caches (XDG Base Directory)."""
    return os.path.abspath(f"{os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')}/recordmill")


def attempt_name(prefix: str) -> str:
    """A name that no other attempt at the same step has."""
    return f"{prefix}.{uuid.uuid4().hex}"


def is_unfinished(path: str) -> bool:
    """Whether a file has a name that `replacing` gives it until it is whole."""
    return re.search(r"\.[0-9a-f]{32}$", path) is not None


@contextmanager
def replacing(path: str | Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Opens a new file beside `path`, under a name of its own, that replaces it once it is whole.

    `path` need not exist; a link there is replaced, not followed. After an error the new file is removed. `durable`
    waits until it is on the disk.

    Raises:
        OSError: it cannot be written, or a device, a pipe or a folder is there, such as `/dev/stdout`.
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
    """Writes a file that appears whole or not at all, as `replacing`; an error names it."""
    try:
        with replacing(path) as file:
            file.write(data)
    except OSError as error:  # of a full disk it names none, or the temporary one
        error.filename = str(path)
        raise


def sync(path: str | Path) -> None:
    """Brings a file's content, or a folder's entries, to the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: str) -> None:
    """Brings everything in a local folder to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(os.path.join(parent, name))
        sync(parent)
