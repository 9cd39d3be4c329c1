"""An output in Google Cloud Storage: a tag is an object's generation, a condition `ifGenerationMatch`.

Credentials come from the environment, as Google's libraries find them; `STORAGE_EMULATOR_HOST` names another server.
"""

from contextlib import suppress
from functools import cached_property
from typing import Any

from recordmill.pipeline.versions.stores.base import Content, refusals
from recordmill.pipeline.versions.stores.bucket import BucketStore, load

_PROJECT = "recordmill"  # the library requires one, and uses it only to make buckets


class GcsStore(BucketStore):
    """A folder of a bucket of Google Cloud Storage."""

    scheme = "gs"

    @cached_property
    def _errors(self) -> Any:
        return load("google.api_core.exceptions", self.url, "gcp")

    @cached_property
    def _bucket(self) -> Any:
        library = load("google.cloud.storage", self.url, "gcp")
        with refusals(self.url, "reached"):
            return library.Client(project=_PROJECT).bucket(self._bucket_name)

    def read(self, name: str) -> Content | None:
        """Asks for the generation first, because a download does not return it."""
        with refusals(self.url, "read"), suppress(self._errors.NotFound):
            blob = self._bucket.blob(self._prefix + name)
            while True:
                with suppress(self._errors.PreconditionFailed):  # replaced in between
                    blob.reload()
                    generation = blob.generation
                    return Content(blob.download_as_bytes(if_generation_match=generation), str(generation))
        return None

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes on a condition; generation 0 means that there is no object."""
        with refusals(self.url, "written"), suppress(self._errors.PreconditionFailed):
            blob = self._bucket.blob(self._prefix + name)
            blob.upload_from_string(data, "application/json", if_generation_match=int(tag or 0))
            return str(blob.generation)
        return self._settle(name, data)

    def delete(self, name: str, tag: str | None = None) -> None:
        gone = self._errors.NotFound, self._errors.PreconditionFailed
        with refusals(self.url, "written"), suppress(*gone):
            self._bucket.blob(self._prefix + name).delete(if_generation_match=None if tag is None else int(tag))

    def _list(self, prefix: str, delimiter: str = "") -> dict[str, int]:
        blobs = self._bucket.client.list_blobs(self._bucket, prefix=prefix, delimiter=delimiter or None)
        objects = {blob.name: int(blob.size) for blob in blobs}  # which also gathers the prefixes
        return objects | dict.fromkeys(blobs.prefixes, 0)

    def _upload(self, path: str, key: str) -> None:
        self._bucket.blob(key).upload_from_filename(path)

    def _write(self, key: str, data: bytes) -> None:
        self._bucket.blob(key).upload_from_string(data, "application/json")
