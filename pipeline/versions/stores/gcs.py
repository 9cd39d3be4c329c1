"""An output in Google Cloud Storage: a tag is an object's generation, a condition `ifGenerationMatch`.

Credentials come from the environment, as Google's libraries find them; `STORAGE_EMULATOR_HOST` names another server.
"""

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
            return library.Client(project=_PROJECT).bucket(self.url.split("/")[2])

    def _blob(self, name: str) -> Any:
        return self._bucket.blob(self._prefix + name)

    def read(self, name: str) -> Content | None:
        """Asks for the generation first, because a download does not return it."""
        with refusals(self.url, "read"):
            blob = self._blob(name)
            while True:
                try:
                    blob.reload()
                    generation = blob.generation
                    return Content(blob.download_as_bytes(if_generation_match=generation), str(generation))
                except self._errors.PreconditionFailed:
                    continue  # replaced in between
                except self._errors.NotFound:
                    return None

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes on a condition; generation 0 means that there is no object."""
        blob = self._blob(name)
        with refusals(self.url, "written"):
            try:
                blob.upload_from_string(data, "application/json", if_generation_match=int(tag or 0))
            except self._errors.PreconditionFailed:
                return self._settle(name, data)
        return str(blob.generation)

    def exists(self, name: str) -> bool:
        with refusals(self.url, "read"):
            return bool(self._blob(name).exists())

    def children(self, folder: str) -> list[str]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        with refusals(self.url, "read"):
            blobs = self._bucket.client.list_blobs(self._bucket, prefix=prefix, delimiter="/")
            objects = [blob.name for blob in blobs]  # which also gathers the prefixes
            folders = [name.rstrip("/") for name in blobs.prefixes]
        return sorted({name[len(prefix) :] for name in (*objects, *folders)} - {""})

    def sizes(self, folder: str) -> dict[str, int]:
        with refusals(self.url, "read"):
            blobs = self._bucket.client.list_blobs(self._bucket, prefix=f"{self._prefix}{folder}/")
            return {blob.name[len(self._prefix) :]: int(blob.size) for blob in blobs}

    def delete(self, name: str, tag: str | None = None) -> None:
        with refusals(self.url, "written"):
            try:
                self._blob(name).delete(if_generation_match=None if tag is None else int(tag))
            except (self._errors.NotFound, self._errors.PreconditionFailed):
                return

    def _upload(self, path: str, name: str) -> None:
        with refusals(self.url, "written"):
            self._blob(name).upload_from_filename(path)

    def _write(self, name: str, data: bytes) -> None:
        with refusals(self.url, "written"):
            self._blob(name).upload_from_string(data, "application/json")
