"""An output in S3 or a compatible store: a tag is an ETag, a condition `If-Match` or `If-None-Match`.

Endpoint, region and credentials come from the environment, as boto3 reads them: `AWS_ENDPOINT_URL`, `AWS_PROFILE`, …
The store must support conditional writes, as S3 does since 2024.
"""

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

    def _key(self, name: str) -> dict[str, str]:
        return {"Bucket": self.url.split("/")[2], "Key": self._prefix + name}

    def read(self, name: str) -> Content | None:
        with refusals(self.url, "read"):
            try:
                answer = self._client.get_object(**self._key(name))
                return Content(answer["Body"].read(), answer["ETag"])
            except self._error as error:
                if _code(error) in _MISSING:
                    return None
                raise

    def write_if(self, name: str, data: bytes, tag: str | None) -> str:
        condition = {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag}
        with refusals(self.url, "written"):
            try:
                return str(self._client.put_object(**self._key(name), Body=data, **condition)["ETag"])
            except self._error as error:
                if _code(error) not in _CONFLICTS + _MISSING:
                    raise
            return self._settle(name, data)

    def exists(self, name: str) -> bool:
        with refusals(self.url, "read"):
            try:
                self._client.head_object(**self._key(name))
            except self._error as error:
                if _code(error) in _MISSING:
                    return False
                raise
            return True

    def children(self, folder: str) -> list[str]:
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        names = set()
        for page in self._pages(prefix, Delimiter="/"):
            names |= {entry["Key"] for entry in page.get("Contents", [])}
            names |= {entry["Prefix"].rstrip("/") for entry in page.get("CommonPrefixes", [])}
        return sorted({name[len(prefix) :] for name in names} - {""})

    def sizes(self, folder: str) -> dict[str, int]:
        entries = (entry for page in self._pages(f"{self._prefix}{folder}/") for entry in page.get("Contents", []))
        return {entry["Key"][len(self._prefix) :]: int(entry["Size"]) for entry in entries}

    def delete(self, name: str, tag: str | None = None) -> None:
        with refusals(self.url, "written"):
            try:
                self._client.delete_object(**self._key(name), **({} if tag is None else {"IfMatch": tag}))
            except self._error as error:
                if _code(error) not in _CONFLICTS + _MISSING:
                    raise

    def _pages(self, prefix: str, **options: str) -> list[dict[str, Any]]:
        with refusals(self.url, "read"):
            pages = self._client.get_paginator("list_objects_v2")
            return list(pages.paginate(Bucket=self.url.split("/")[2], Prefix=prefix, **options))

    def _upload(self, path: str, name: str) -> None:
        with refusals(self.url, "written"):
            self._client.upload_file(path, *self._key(name).values())

    def _write(self, name: str, data: bytes) -> None:
        with refusals(self.url, "written"):
            self._client.put_object(**self._key(name), Body=data)


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
