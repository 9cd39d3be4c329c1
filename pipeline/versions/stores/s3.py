"""An output in S3 or a compatible store: a tag is an ETag, a condition `If-Match` or `If-None-Match`.

Endpoint, region and credentials come from the environment, as boto3 reads them: `AWS_ENDPOINT_URL`, `AWS_PROFILE`, …
The store must support conditional writes, as S3 does since 2024.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from recordmill.pipeline.versions.stores.base import Content, refusals
from recordmill.pipeline.versions.stores.bucket import BucketStore, load

_MISSING = ("404", "NoSuchKey", "NotFound")
_CONFLICTS = ("409", "412", "ConditionalRequestConflict", "PreconditionFailed")


class S3Store(BucketStore):
    """A folder of a bucket of S3."""

    scheme = "s3"

    @cached_property
    def _error(self) -> Any:
        return load("botocore.exceptions", self.url, "aws").ClientError

    @cached_property
    def _client(self) -> Any:
        library = load("boto3", self.url, "aws")
        with refusals(self.url, "reached"):
            return library.client("s3")

    @contextmanager
    def _passing(self, *codes: str) -> Iterator[None]:
        """Ends the block where the store answers by one of these codes."""
        try:
            yield
        except self._error as error:
            if str(error.response.get("Error", {}).get("Code", "")) not in codes:
                raise

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket_name, "Key": self._prefix + name}

    def read(self, name: str) -> Content | None:
        with refusals(self.url, "read"), self._passing(*_MISSING):
            answer = self._client.get_object(**self._key(name))
            return Content(answer["Body"].read(), answer["ETag"])
        return None

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with refusals(self.url, "written"), self._passing(*_CONFLICTS, *_MISSING):
            return str(self._client.put_object(**self._key(name), Body=data, **condition)["ETag"])
        return self._settle(name, data)

    def delete(self, name: str, tag: str | None = None) -> None:
        with refusals(self.url, "written"), self._passing(*_CONFLICTS, *_MISSING):
            self._client.delete_object(**self._key(name), **({} if tag is None else {"IfMatch": tag}))

    def _list(self, prefix: str, delimiter: str = "") -> dict[str, int]:
        listing: dict[str, int] = {}
        pages = self._client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self._bucket_name, Prefix=prefix, Delimiter=delimiter):
            listing |= {entry["Key"]: int(entry["Size"]) for entry in page.get("Contents", [])}
            listing |= {entry["Prefix"]: 0 for entry in page.get("CommonPrefixes", [])}
        return listing

    def _upload(self, path: str, key: str) -> None:
        self._client.upload_file(path, self._bucket_name, key)

    def _write(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket_name, Key=key, Body=data)
