"""Opens the store of an output: a local folder, Google Cloud Storage or S3, all by one protocol, `Store`."""

from functools import lru_cache
from pathlib import Path

from recordmill.pipeline.dataset.paths import Location
from recordmill.pipeline.versions.stores.base import OutputError, Store
from recordmill.pipeline.versions.stores.bucket import BucketStore
from recordmill.pipeline.versions.stores.gcs import GcsStore
from recordmill.pipeline.versions.stores.local import LocalStore
from recordmill.pipeline.versions.stores.s3 import S3Store

_STORES = {"gs": GcsStore, "s3": S3Store}


def is_local(output: str) -> bool:
    """Whether an output is a path of this machine, not a URL."""
    return ":/" not in output


def open_store(output: str) -> Store:
    """Opens the store of an output: a path, `gs://bucket/folder` or `s3://bucket/folder`. Sends no request yet.

    Raises:
        OutputError: a URL of another scheme or without a bucket, or its library is not installed.
    """
    return LocalStore(output) if is_local(output) else open_bucket(output)


def open_bucket(url: str) -> BucketStore:
    """Opens a folder of an object store. Raises: OutputError as `open_store`."""
    scheme, _, rest = url.partition("://")
    bucket, _, folder = rest.rstrip("/").partition("/")
    if scheme not in _STORES or not bucket:
        raise OutputError(f"the output {url} is neither a path nor a URL like gs://bucket/folder or s3://bucket/folder")
    return _STORES[scheme](bucket, folder)


def open_object(url: str) -> tuple[BucketStore, str]:
    """Returns the bucket and the name of an object; all reads of this process share the bucket's client.

    Raises:
        OutputError: as `open_store`.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, name = rest.partition("/")
    return _shared_bucket(f"{scheme}://{bucket}"), name


@lru_cache(maxsize=32)
def _shared_bucket(url: str) -> BucketStore:
    return open_bucket(url)


def open_location(output: str) -> Location:
    """Returns an output, or a folder in it, as `pipeline.dataset.manifest` reads it; a local path stays as given."""
    return Path(output) if is_local(output) else open_store(output).location
