"""An output in Google Cloud Storage: a tag is an object's generation, a condition `ifGenerationMatch`.

Google's libraries find credentials in the environment; `STORAGE_EMULATOR_HOST` names another server. Without
credentials, requests are anonymous, enough for public buckets.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from typing import Any
from urllib.parse import quote

from recordmill.pipeline.versions.stores import parts
from recordmill.pipeline.versions.stores.base import MOST_SHARED, Conflict, Content, check_shared, load, refusals
from recordmill.pipeline.versions.stores.bucket import CONNECTIONS, BucketStore, Listed
from recordmill.pipeline.versions.stores.parts import OPTIONS, PART_BYTES, Part, Upload, byte_range, size_of

TIMEOUT_SECONDS = 60  # for an answer's next bytes


class GcsStore(BucketStore):
    """A folder of a bucket of Google Cloud Storage."""

    scheme = "gs"
    _tag = "version"  # its generation

    @cached_property
    def _errors(self) -> Any:
        return load("google.api_core.exceptions", self.url, "gcp")

    @cached_property
    def _bucket(self) -> Any:
        library = load("google.cloud.storage", self.url, "gcp")
        none_found = load("google.auth.exceptions", self.url, "gcp").DefaultCredentialsError
        with refusals(self.url, "reached"):
            try:
                client = library.Client(project="recordmill")  # required, but used only to make buckets
            except none_found:
                if "GOOGLE_APPLICATION_CREDENTIALS" in os.environ:
                    raise
                client = library.Client.create_anonymous_client()

        class Bounded(load("requests.adapters", self.url, "gcp").HTTPAdapter):  # type: ignore[misc]
            """Reads no listing or error without an end."""

            def send(self, request: Any, **options: Any) -> Any:
                answer = super().send(request, **options)
                if not options.get("stream") or answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
                    answer._content = answer.raw.read(parts.MOST_ANSWER, decode_content=True)
                return answer

        for scheme in ("https://", "http://"):  # the default pool keeps only 10 connections
            client._http.mount(scheme, Bounded(pool_maxsize=CONNECTIONS))
        return client.bucket(self._bucket_name)

    def _obstore(self) -> Any:
        client = self._bucket.client
        anonymous = load("google.auth.credentials", self.url, "gcp").AnonymousCredentials
        if isinstance(client._credentials, anonymous):
            access: dict[str, Any] = {"skip_signature": True}
        else:
            provider = import_module("obstore.auth.google").GoogleCredentialProvider
            access = {"credential_provider": provider(client._credentials)}
        store = import_module("obstore.store").GCSStore
        return store(self._bucket_name, base_url=client.api_endpoint, **access, **OPTIONS)

    def read_tagged(self, name: str, most: int = MOST_SHARED) -> Content | None:
        """Requests the generation first, because not every server's download returns it."""
        with refusals(self.url, "read"), suppress(self._errors.NotFound, FileNotFoundError):
            blob = self._bucket.blob(self._key(name))
            for _ in range(parts.TRIES):
                blob.reload()
                check_shared(blob.size, most, self.location / name)
                data, _, tag = self._range(blob.name, 0, None, None)
                if tag in ("", str(blob.generation)):  # else replaced in between
                    return Content(data, str(blob.generation))
            raise ValueError(f"{name} changes with each request")
        return None

    def _write_if(self, name: str, data: bytes, tag: str | None) -> str:
        """Writes conditionally; generation 0 means a missing object."""
        with refusals(self.url, "written"), suppress(self._errors.PreconditionFailed):
            blob = self._bucket.blob(self._key(name))
            blob.upload_from_string(data, "application/json", if_generation_match=int(tag or 0))
            return str(blob.generation)
        return self._settle(name, data)

    def delete(self, name: str, tag: str | None = None) -> None:
        gone = self._errors.NotFound, self._errors.PreconditionFailed
        with refusals(self.url, "written"), suppress(*gone):
            self._bucket.blob(self._key(name)).delete(if_generation_match=None if tag is None else int(tag))

    def _list(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Listed]]:
        blobs = self._bucket.client.list_blobs(self._bucket, prefix=prefix, delimiter=delimiter or None)
        for page in blobs.pages:
            yield {blob.name: Listed(int(blob.size), str(blob.generation), blob.updated) for blob in page}
        yield dict.fromkeys(blobs.prefixes, Listed(0, ""))  # of all pages

    def _begin(self, key: str) -> Upload:
        return _ResumableUpload(self, key)

    def _range(self, key: str, start: int, end: int | None, most: int | None) -> Part:
        """Uses the JSON API, since the library's downloads do not return the object's size."""
        retry = load("google.cloud.storage.retry", self.url, "gcp").DEFAULT_RETRY
        try:
            return retry(self._answer)(key, start, end, most)
        except self._errors.NotFound:
            raise self._absent(key) from None
        except self._errors.RequestRangeNotSatisfiable:  # an empty or truncated object
            return Part(b"", 0)

    def _answer(self, key: str, start: int, end: int | None, most: int | None) -> Part:
        client = self._bucket.client
        url = f"{client.api_endpoint}/download/storage/v1/b/{self._bucket_name}/o/{quote(key, safe='')}?alt=media"
        headers = byte_range(start, end)
        with client._http.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as answer:
            if answer.status_code not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                raise self._errors.from_http_response(answer)
            is_part = answer.status_code == HTTPStatus.PARTIAL_CONTENT
            size = size_of(answer.headers.get("Content-Range"), int(answer.headers.get("Content-Length", 0)), most)
            data = parts.received(answer.raw.read, size, start if is_part else 0, end)  # a server may ignore the range
            return Part(data if is_part else data[start:], size, answer.headers.get("X-Goog-Generation", ""))

    def _copy(self, key: str, target: str) -> None:
        self._bucket.copy_blob(self._bucket.blob(key), self._bucket, target)

    def _write(self, key: str, data: bytes) -> None:
        self._bucket.blob(key).upload_from_string(data, "application/json")


class _ResumableUpload(Upload):
    """A resumable upload: its last request shows the object; an abandoned one expires after a week."""

    def __init__(self, store: GcsStore, key: str) -> None:
        self._store, self._key = store, key
        self._refused = load("google.cloud.storage.exceptions", store.url, "gcp").InvalidResponse
        # Generation 0: the object must not exist.
        self._writer = store._bucket.blob(key).open("wb", chunk_size=PART_BYTES, if_generation_match=0)

    def send(self, data: bytes | bytearray) -> None:
        with self._conflicts():
            self._writer.write(bytes(data))

    def complete(self, data: bytes | bytearray) -> None:
        with self._conflicts():
            self._writer.write(bytes(data))
            self._writer.close()

    @contextmanager
    def _conflicts(self) -> Iterator[None]:
        try:
            yield
        except (self._refused, self._store._errors.PreconditionFailed) as error:
            if error.response.status_code != 412:
                raise
            raise Conflict(self._key) from None

    def abort(self) -> None:
        try:
            self._writer.terminate()
        finally:  # garbage collection of an open writer would complete the object
            self._writer._buffer.close()
