"""A folder served as a bucket of S3 and of GCS on the loopback, read only: it counts, waits, and refuses.

    python benchmarks/object_server.py FOLDER [--delay 0.03] [--refuse 0.05] [--rate 125e6]     # prints its port

`GET /__counts` returns the requests by kind and the bytes as JSON, and begins anew. It takes 0.2 ms of CPU a request,
where an emulator takes 5, so that on few cores the reader is measured and not the server.
"""

import argparse
import asyncio
import json
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

REASONS = {200: "OK", 206: "Partial Content", 404: "Not Found", 416: "Range Not Satisfiable", 503: "Slow Down"}
Answer = tuple[int, dict[str, str], bytes]


class Server:
    """Answers requests for the objects of a bucket, whose name is that of the folder."""

    def __init__(self, folder: Path, delay: float, refuse: float, rate: float) -> None:
        self._folder, self._delay, self._refuse, self._rate, self._free = folder, delay, refuse, rate, 0.0
        self._sizes = {
            str(path.relative_to(folder)): path.stat().st_size for path in folder.rglob("*") if path.is_file()
        }
        self._counts: Counter[str] = Counter()
        self._random = random.Random(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of a connection, one after another, until its client ends it or dies."""
        with suppress(ConnectionError):
            while line := await reader.readline():
                await self._serve(line.decode(), reader, writer)
        writer.close()

    async def _serve(self, line: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = line.split()
        headers = {}
        while (field := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = field.decode().partition(":")
            headers[name.lower()] = value.strip()
        await reader.readexactly(int(headers.get("content-length", 0)))
        if not target.startswith("/__"):
            await asyncio.sleep(self._delay)
        status, fields, body = self._answer(method, target, headers)
        if self._rate:  # one wire for all connections
            self._free = max(self._free, time.monotonic()) + len(body) / self._rate
            await asyncio.sleep(self._free - time.monotonic())
        fields = {"Content-Length": str(len(body))} | fields
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(
            f"HTTP/1.1 {status} {REASONS[status]}\r\n{head}\r\n".encode() + (b"" if method == "HEAD" else body)
        )
        await writer.drain()

    def _answer(self, method: str, target: str, headers: dict[str, str]) -> Answer:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        parts = unquote(url.path).strip("/").split("/")
        if parts[0] == "__counts":
            body, self._counts = json.dumps(self._counts).encode(), Counter()
            return 200, {}, body
        if self._random.random() < self._refuse:
            self._counts["refused"] += 1
            return 503, {}, b"<Error><Code>SlowDown</Code></Error>"
        if parts[0] in ("download", "storage"):  # GCS: /download/storage/v1/b/BUCKET/o/NAME, or /storage/v1/b/BUCKET/o
            name = "/".join(parts[parts.index("o") + 1 :]) if "o" in parts else ""
            return self._object(name, method, headers) if name else self._list_gcs(query)
        name = "/".join(parts[1:])
        return self._object(name, method, headers) if name else self._list_s3(query)

    def _object(self, name: str, method: str, headers: dict[str, str]) -> Answer:
        self._counts[method.lower()] += 1
        if name not in self._sizes:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        size, fields = self._sizes[name], {"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if method == "HEAD":
            return 200, {**fields, "Content-Length": str(size)}, b""
        if "range" not in headers:
            self._counts["bytes"] += size
            return 200, fields, (self._folder / name).read_bytes()
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        if int(first) >= size:
            return 416, {}, b"<Error><Code>InvalidRange</Code></Error>"
        with open(self._folder / name, "rb") as file:
            file.seek(int(first))
            part = file.read(int(last) + 1 - int(first) if last else -1)
        self._counts["bytes"] += len(part)
        return 206, {**fields, "Content-Range": f"bytes {first}-{int(first) + len(part) - 1}/{size}"}, part

    def _list_s3(self, query: dict[str, str]) -> Answer:
        self._counts["list"] += 1
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size><ETag>1</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, size in self._sizes.items()
            if name.startswith(query.get("prefix", ""))
        )
        return 200, {}, f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()

    def _list_gcs(self, query: dict[str, str]) -> Answer:
        self._counts["list"] += 1
        items = [
            {"name": name, "size": str(size), "generation": "1", "updated": "2026-01-01T00:00:00.000Z"}
            for name, size in self._sizes.items()
            if name.startswith(query.get("prefix", ""))
        ]
        return 200, {"Content-Type": "application/json"}, json.dumps({"items": items}).encode()


async def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds that each answer waits")
    parser.add_argument("--refuse", type=float, default=0.0, help="share of requests that are answered by 503")
    parser.add_argument("--rate", type=float, default=0.0, help="bytes a second of all answers together; 0: no limit")
    given = parser.parse_args()
    server = await asyncio.start_server(
        Server(given.folder, given.delay, given.refuse, given.rate).serve, "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
