"""A folder or a file at a URL, such as `s3://bucket/out/emoji`: the part of `pathlib.Path` that a dataset needs.

It asks the store each time and keeps nothing, so that it sees a version published meanwhile. fsspec, which knows the
stores, is loaded when one is asked; with `pathlib`'s own names, a local folder and a remote one are read by one code.
(The package universal-pathlib reports a file that may not be read as absent.)

>>> (RemotePath("s3://bucket/out/emoji") / "LATEST").read_bytes()  # doctest: +SKIP
b'{"version": …'
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.safe_text import redacted

MISSING = "copy the version again, or build again"
REFUSED = "check the address, the credentials and the network"
_EXTRAS = {"s3": "aws", "s3a": "aws", "gs": "gcp", "gcs": "gcp"}


@dataclass(frozen=True)
class RemotePath:
    """An address, without a slash at its end."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, inner: str) -> "RemotePath":
        """Returns the address of a file or folder in this folder."""
        return RemotePath(f"{self.url}/{inner}")

    @property
    def name(self) -> str:
        """The address' last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> "RemotePath":
        """The folder that holds this."""
        return RemotePath(self.url.rpartition("/")[0])

    def is_file(self) -> bool:
        """Whether the object exists. Raises: DatasetError if the store cannot be asked."""
        try:
            return self._type() == "file"
        except PermissionError:  # S3's answer for an absent object to a user who may not list the bucket
            return False

    def is_dir(self) -> bool:
        """Whether anything is below. Raises: DatasetError if the store cannot be asked."""
        try:
            return self._type() == "directory"
        except PermissionError as error:
            raise unreadable(self.url, error) from None

    def read_bytes(self, most: int | None = None) -> bytes:
        """Returns the object's content, or its first bytes. Raises: DatasetError if it is missing or cannot be read."""
        try:
            return bytes(file_system(self.url).cat_file(self.url, end=most))
        except Exception as error:  # a store's library has its own errors, not only OSError
            raise unreadable(self.url, error) from None

    def glob(self, pattern: str) -> Iterator["RemotePath"]:
        """Returns the addresses below that match a pattern. Raises: DatasetError if the store cannot be asked."""
        store = file_system(self.url)
        try:
            paths = store.glob(f"{self.url}/{pattern}")
        except Exception as error:
            raise unreadable(self.url, error) from None
        return (RemotePath(store.unstrip_protocol(path)) for path in paths)

    def _type(self) -> str | None:
        try:
            return str(file_system(self.url).info(self.url)["type"])
        except FileNotFoundError:
            return None
        except (PermissionError, DatasetError):
            raise
        except Exception as error:
            raise unreadable(self.url, error) from None


def file_system(url: str) -> Any:
    """Returns fsspec's file system for a URL. Raises: DatasetError if its package is not installed."""
    scheme = url.partition("://")[0]
    try:
        # A cache of listings would hide a version that is published later.
        return importlib.import_module("fsspec.core").url_to_fs(url, use_listings_cache=False)[0]
    except (ImportError, ValueError) as error:
        extra = _EXTRAS.get(scheme)
        advice = (
            f'`pip install "recordmill[{extra}]"`' if extra else "copy the version to a local folder, s3:// or gs://"
        )
        raise DatasetError(f"{url} cannot be read ({redacted(str(error), url)}): {advice}") from None


def unreadable(url: str, error: Exception) -> DatasetError:
    """Returns the error for an object that cannot be read; raise it `from None`: a store's own has secrets."""
    if isinstance(error, FileNotFoundError):
        return DatasetError(f"{url} is missing: {MISSING}")
    reason = redacted(str(getattr(error, "strerror", None) or error), url)
    return DatasetError(f"{url} cannot be read ({reason}): {REFUSED}")
