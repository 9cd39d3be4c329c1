"""Opens the store of an output: a local folder, Google Cloud Storage or S3, all by one protocol, `Store`."""

from pathlib import Path

from recordmill.pipeline.dataset.safe_paths import Location
from recordmill.pipeline.versions.stores.base import Conflict, Content, OutputError, Store, Stored
from recordmill.pipeline.versions.stores.gcs import GcsStore
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.s3 import S3Store

__all__ = [
    "Conflict",
    "Content",
    "OutputError",
    "Store",
    "Stored",
    "is_local",
    "location",
    "open_location",
    "open_store",
]

_STORES = {"gs": GcsStore, "s3": S3Store}


def is_local(output: str) -> bool:
    """Whether an output is a path of this machine, not a URL."""
    return ":/" not in output


def open_store(output: str) -> Store:
    """Opens the store of an output: a path, `gs://bucket/folder` or `s3://bucket/folder`. Sends no request yet.

    Raises:
        OutputError: a URL of another scheme or without a bucket, or its library is not installed.
    """
    if is_local(output):
        return LocalStore(output)
    scheme, _, rest = output.partition("://")
    bucket, _, folder = rest.rstrip("/").partition("/")
    if scheme not in _STORES or not bucket:
        raise OutputError(
            f"the output {output} is neither a path nor a URL like gs://bucket/folder or s3://bucket/folder"
        )
    return _STORES[scheme](bucket, folder)


def location(store: Store) -> Location:
    """The output of a store, as `pipeline.dataset.manifest` reads it."""
    return Path(store.url) if isinstance(store, LocalStore) else Stored(store)


def open_location(output: str) -> Location:
    """An output or a folder in it, as `pipeline.dataset.manifest` reads it; a local path stays as given."""
    return Path(output) if is_local(output) else Stored(open_store(output))
