"""An output in S3 or a compatible store: a tag is an ETag, a condition `If-Match` or `If-None-Match`.

boto3 reads endpoint, region and credentials from the environment: `AWS_ENDPOINT_URL`, `AWS_PROFILE`, … Without
credentials, requests are unsigned, enough for public buckets. The store must support conditional writes, as S3 does
since 2024.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from http import HTTPStatus
from importlib import import_module
from typing import Any

from recordmill.pipeline.versions.stores.base import MOST_SHARED, Conflict, Content, check_shared, load, refusals
from recordmill.pipeline.versions.stores.bucket import CONNECTIONS, BucketStore, Listed, gathered
from recordmill.pipeline.versions.stores.parts import MOST_ANSWER, OPTIONS, Part, Upload, byte_range, received, size_of

_MISSING = ("404", "NoSuchKey", "NotFound")
_CONFLICTS = ("409", "412", "ConditionalRequestConflict", "PreconditionFailed")
_DELETED_AT_ONCE = 1000  # S3's limit
_CONFIG = {
    "max_pool_connections": CONNECTIONS,
    "retries": {"mode": "standard", "max_attempts": 10},  # backoff up to a minute, for short outages
    "response_checksum_validation": "when_required",  # avoids hashing each answer in Python, 1 ms a MiB
}
_MAKING = threading.Lock()  # held while making a client: boto3 loads its models without a lock


class S3Store(BucketStore):
    """A folder of a bucket of S3."""

    scheme = "s3"
    _tag = "e_tag"

    @cached_property
    def _error(self) -> Any:
        return load("botocore.exceptions", self.url, "aws").ClientError

    @cached_property
    def _session(self) -> Any:
        return load("boto3", self.url, "aws").Session()

    @cached_property
    def _client(self) -> Any:
        config = load("botocore.config", self.url, "aws").Config
        signature = {} if self._has_credentials else {"signature_version": load("botocore", self.url, "aws").UNSIGNED}
        with refusals(self.url, "reached"), _MAKING:
            client = self._session.client("s3", config=config(**_CONFIG, **signature))
        client.meta.events.register("before-send.s3", partial(_send, client._endpoint.http_session))
        return client

    @cached_property
    def _has_credentials(self) -> bool:
        with refusals(self.url, "reached"), _MAKING:
            return self._session.get_credentials() is not None

    def _obstore(self) -> Any:
        access: dict[str, Any] = {"skip_signature": True}
        if self._has_credentials:
            provider = import_module("obstore.auth.boto3").Boto3CredentialProvider
            renewed = timedelta(minutes=5)  # boto3 renews credentials a quarter of an hour before they expire
            access = {"credential_provider": provider(self._session, ttl=renewed)}
        place = {"endpoint": self._client.meta.endpoint_url, "region": self._client.meta.region_name or "us-east-1"}
        return import_module("obstore.store").S3Store(self._bucket_name, **access, **place, **OPTIONS)

    @contextmanager
    def _passing(self, *codes: str) -> Iterator[None]:
        """Ends the block quietly if the store answers with one of these codes."""
        try:
            yield
        except self._error as error:
            if str(error.response.get("Error", {}).get("Code", "")) not in codes:
                raise

    def _object(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket_name, "Key": self._key(name)}

    def read_tagged(self, name: str, most: int = MOST_SHARED) -> Content | None:
        with refusals(self.url, "read"), self._passing(*_MISSING):
            answer = self._client.get_object(**self._object(name))
            size = answer.get("ContentLength", 0)
            check_shared(size, most, self.location / name)
            return Content(received(answer["Body"].read, size), answer["ETag"])
        return None

    def _write_if(self, name: str, data: bytes, tag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with refusals(self.url, "written"), self._passing(*_CONFLICTS, *_MISSING):
            return str(self._client.put_object(**self._object(name), Body=data, **condition)["ETag"])
        return self._settle(name, data)

    def delete(self, name: str, tag: str | None = None) -> None:
        with refusals(self.url, "written"), self._passing(*_CONFLICTS, *_MISSING):
            self._client.delete_object(**self._object(name), **({} if tag is None else {"IfMatch": tag}))

    def _delete_all(self, names: Sequence[str]) -> None:
        """Deletes many objects per request, then refused ones singly, which raises the reason."""
        for start in range(0, len(names), _DELETED_AT_ONCE):
            objects = [{"Key": self._prefix + name} for name in names[start : start + _DELETED_AT_ONCE]]
            with refusals(self.url, "written"):
                wanted = {"Objects": objects, "Quiet": True}
                answer = self._client.delete_objects(Bucket=self._bucket_name, Delete=wanted)
            super()._delete_all([error["Key"].removeprefix(self._prefix) for error in answer.get("Errors", [])])

    def _list(self, prefix: str, delimiter: str = "") -> Iterator[dict[str, Listed]]:
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket_name, Prefix=prefix, Delimiter=delimiter):
            found = {entry["Prefix"]: Listed(0, "") for entry in page.get("CommonPrefixes", [])}
            for entry in page.get("Contents", []):
                found[entry["Key"]] = Listed(int(entry["Size"]), entry["ETag"], entry["LastModified"])
            yield found

    def abort_uploads(self, folder: str) -> None:
        """Removes the parts of multipart uploads, which cost money but are not listed as objects."""
        self._abort(self._uploads(self._below(folder)))

    def strays(self, *, remove: bool) -> dict[str, int]:
        """Finds multipart uploads older than a day; their bytes are unknown, reported as 0."""
        old = datetime.now(UTC) - timedelta(days=1)
        uploads = [upload for upload in self._uploads(self._prefix) if upload["Initiated"] < old]
        if remove:
            self._abort(uploads)
        return {upload["Key"].removeprefix(self._prefix): 0 for upload in uploads}

    def _uploads(self, prefix: str) -> list[dict[str, Any]]:
        with refusals(self.url, "read"):
            lister = self._client.get_paginator("list_multipart_uploads")
            pages = lister.paginate(Bucket=self._bucket_name, Prefix=prefix)
            uploads = gathered({each["UploadId"]: each for each in page.get("Uploads", [])} for page in pages)
            return list(uploads.values())

    def _abort(self, uploads: list[dict[str, Any]]) -> None:
        for upload in uploads:
            name = {"Bucket": self._bucket_name, "Key": upload["Key"], "UploadId": upload["UploadId"]}
            with refusals(self.url, "written"), self._passing("NoSuchUpload"):
                self._client.abort_multipart_upload(**name)

    def _begin(self, key: str) -> Upload:
        return _MultipartUpload(self, key)

    def _range(self, key: str, start: int, end: int | None, most: int | None) -> Part:
        wanted = byte_range(start, end)
        with self._passing("InvalidRange"):  # an empty or truncated object
            with self._passing(*_MISSING):
                answer = self._client.get_object(Bucket=self._bucket_name, Key=key, **wanted)
                size = size_of(answer.get("ContentRange"), answer.get("ContentLength", 0), most)
                return Part(received(answer["Body"].read, size, start, end), size, answer.get("ETag", ""))
            raise self._absent(key)
        return Part(b"", 0)

    def _copy(self, key: str, target: str) -> None:
        self._client.copy({"Bucket": self._bucket_name, "Key": key}, self._bucket_name, target)

    def _write(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket_name, Key=key, Body=data)


def _send(session: Any, request: Any, **_: Any) -> Any:
    """Sends a request as boto3 does, but reads no listing or error without an end."""
    is_object, request.stream_output = request.stream_output, True
    answer = session.send(request)
    if not is_object or answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
        try:
            answer._content = answer.raw.read(MOST_ANSWER + 1)
        except Exception as error:  # boto3 tries again
            raise load("botocore.exceptions", request.url, "aws").HTTPClientError(error=error) from error
        if len(answer.content) > MOST_ANSWER:
            raise ValueError(f"the store's answer has more than {MOST_ANSWER:,} bytes")
    return answer


class _MultipartUpload(Upload):
    """A single request for a small object, otherwise a multipart upload, invisible until its completion."""

    def __init__(self, store: S3Store, key: str) -> None:
        self._store, self._object = store, {"Bucket": store._bucket_name, "Key": key}
        self._upload: dict[str, str] = {}
        self._parts: list[dict[str, Any]] = []

    def send(self, data: bytes | bytearray) -> None:
        client, number = self._store._client, len(self._parts) + 1
        if not self._upload:
            self._upload = self._object | {"UploadId": client.create_multipart_upload(**self._object)["UploadId"]}
        answer = client.upload_part(**self._upload, PartNumber=number, Body=bytes(data))
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    def complete(self, data: bytes | bytearray) -> None:
        """Sends the rest, and shows the object.

        Raises: Conflict: the object exists (412), another write is running (409), or the upload is gone, since a
        library retries requests after lost answers.
        """
        client = self._store._client
        with self._store._passing(*_CONFLICTS, "NoSuchUpload"):
            if not self._upload:
                client.put_object(**self._object, Body=bytes(data), IfNoneMatch="*")
                return
            if data:
                self.send(data)
            client.complete_multipart_upload(**self._upload, MultipartUpload={"Parts": self._parts}, IfNoneMatch="*")
            return
        self.abort()
        raise Conflict(self._object["Key"])

    def abort(self) -> None:
        if self._upload:
            with self._store._passing("NoSuchUpload"):
                self._store._client.abort_multipart_upload(**self._upload)
