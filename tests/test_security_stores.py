"""An object store that lies about lengths, tags and what it holds costs a line, and touches nothing elsewhere."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, count
from pathlib import Path

import pytest

from recordmill import DatasetError, open_dataset
from recordmill.pipeline.cli import commands
from recordmill.pipeline.dataset import manifest
from recordmill.pipeline.versions.base import Base
from recordmill.pipeline.versions.stores import bucket as bucket_store
from recordmill.pipeline.versions.stores.base import Content, OutputError
from recordmill.pipeline.versions.stores.bucket import BucketStore, Listed
from recordmill.pipeline.versions.stores.open_store import open_bucket
from recordmill.pipeline.versions.stores.s3 import S3Store
from tests.constants import constants
from tests.emulators import s3
from tests.memory_store import Memory, memory_store
from tests.messages import raises
from tests.published import VERSION, write_version

URL = "memory://bucket/out/small"
Lie = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A store with a dataset in it."""
    write_version(tmp_path / "out", rows=24)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    with memory_store() as memory:
        memory.objects |= {f"{URL}/{path.relative_to(tmp_path / 'out')}": path.read_bytes() for path in files}
        yield memory


def rows_read() -> int:
    """Reads a split, each record with its checksum; gives the number of rows."""
    rows = open_dataset(URL).evaluation_input("train", batch_size=4, features=["price"], verify=True)
    return sum(len(batch["price"]) for batch in rows.as_numpy())


@pytest.mark.parametrize(
    "lie",
    [
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data + bytes(1 << 20),
        lambda data: b"",
        lambda data: b"\xff" * len(data),
        lambda data: data[::-1],
    ],
    ids=["cut", "longer", "much longer", "nothing", "another", "turned"],
)
def test_a_reader_believes_no_length(lie: Callable[[bytes], bytes], memory: Memory) -> None:
    memory.lie = lambda url, part: part._replace(data=lie(part.data)) if "small-" in url else part
    with pytest.raises(DatasetError, match=r"small-train\.(tfrecord|index)|damaged|broken"):
        rows_read()


@pytest.mark.parametrize("size", [-1, 0, 10**30])
def test_a_reader_believes_no_size(size: int, memory: Memory) -> None:
    memory.lie = lambda url, part: part._replace(size=size)
    with suppress(DatasetError):  # where the size is not needed, it does not matter
        assert rows_read() == open_dataset(URL).manifest.split("train").records


def test_a_huge_manifest_is_not_read_whole(memory: Memory) -> None:
    memory.objects[f"{URL}/versions/{VERSION}/dataset.json"] = bytes(1000)
    with constants(manifest, MOST_MANIFEST_BYTES=99):
        assert "larger than 99 bytes" in Base.read(URL).fault
    assert memory.fetched == [100]


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An output in S3, and an object of somebody else's in the same bucket."""
    folder = tmp_path_factory.mktemp("lies")
    write_version(folder / "out", rows=24)
    with s3() as url:
        store = open_bucket(url)
        for path in sorted(path for path in (folder / "out").rglob("*") if path.is_file()):
            store.write(path.relative_to(folder / "out").as_posix(), path.read_bytes())
        open_bucket(f"{url}-victim").write("versions/v/dataset.json", b"{}")
        yield url


def listing(more: Callable[[str], dict[str, Listed]]) -> Lie:
    def tell(patch: pytest.MonkeyPatch) -> None:
        told = S3Store._list
        patch.setattr(S3Store, "_list", lambda self, prefix, *rest: chain(told(self, prefix, *rest), [more(prefix)]))

    return tell


def content(lie: Callable[[Content], Content]) -> Lie:
    def tell(patch: pytest.MonkeyPatch) -> None:
        read = S3Store.read_tagged

        def lying(self: S3Store, name: str, *most: int) -> Content | None:
            truth = read(self, name, *most)
            return None if truth is None else lie(truth)

        patch.setattr(S3Store, "read_tagged", lying)

    return tell


TAGS = count()
LIES: dict[str, Lie] = {
    "names that lead up": listing(lambda prefix: {f"{prefix}../../victim": Listed(1, "t")}),
    "another prefix": listing(lambda prefix: {"elsewhere/versions/v/dataset.json": Listed(1, "t")}),
    "less than nothing": listing(lambda prefix: {f"{prefix}{VERSION}/a": Listed(-(10**30), "t")}),
    "odd names": listing(
        lambda prefix: {f"{prefix}\0\x1b[2J\udc80": Listed(1, "t"), f"{prefix}{'x' * 9000}": Listed(1, "")}
    ),
    "half the content": content(lambda truth: Content(truth.data[: len(truth.data) // 2], truth.tag)),
    "other content": content(lambda truth: Content(b"[]", truth.tag)),
    "another tag each time": content(lambda truth: Content(truth.data, f'"{next(TAGS):032x}"')),
}


@pytest.mark.nightly
@pytest.mark.parametrize("lie", LIES)
def test_a_store_that_lies_costs_a_line(
    lie: str, bucket: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        LIES[lie](patch)
        for arguments in (
            ["versions", "list", bucket],
            ["show", bucket],
            ["versions", "pin", bucket, "1"],
            ["versions", "prune", bucket, "--keep", "1"],
            ["verify", bucket],
        ):
            with suppress(SystemExit):
                commands.main(arguments)
            shown = capfd.readouterr()
            assert "unexpectedly" not in shown.err
            assert "\x1b" not in shown.out + shown.err
    assert open_bucket(f"{bucket}-victim").exists("versions/v/dataset.json")


TOKEN = "<NextContinuationToken>{}</NextContinuationToken><IsTruncated>true</IsTruncated>"
ENTRY = (
    "<Contents><Key>{}</Key><Size>1</Size><ETag>a</ETag><LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
)
JSON = '{{"nextPageToken": "{}", "items": [{{"name": "{}", "size": "1", "generation": "1"}}]}}'


class Endless(BaseHTTPRequestHandler):
    """A bucket whose objects have 9 bytes, and go on; its listings, too."""

    protocol_version = "HTTP/1.1"
    stated = 10**12  # the bytes of an answer
    status = 206
    pages = count()

    def do_GET(self) -> None:
        is_s3 = "list-type" in self.path
        if is_s3 or "/o?" in self.path:
            return self.list_objects(next(self.pages), is_s3)
        self.answer(self.status, self.stated)
        return self.go_on(b" ")

    def list_objects(self, page: int, is_s3: bool) -> None:
        if "endless" in self.path:
            self.answer(200, self.stated)
            return self.go_on(b"<ListBucketResult>" if is_s3 else b"[")
        key = "same" if "same" in self.path else f"key{page}"
        body = f"<ListBucketResult>{TOKEN.format(page)}{ENTRY.format(key)}</ListBucketResult>"
        data = (body if is_s3 else JSON.format(page, key)).encode()
        self.answer(200, len(data))
        return self.go_on(data, 1)

    def answer(self, status: int, size: int) -> None:
        self.send_response(status)
        headers = {"Content-Length": size, "ETag": '"a"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        headers |= {"Content-Range": "bytes 0-3/9"} if status == 206 else {}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()

    def go_on(self, begin: bytes, pieces: int = 10**6) -> None:
        with suppress(OSError):
            self.wfile.write(begin)
            for _ in range(pieces - 1):
                self.wfile.write(b" " * (1 << 20))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["s3", "gs"])
def endless(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[BucketStore]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever).start()
        address = f"http://127.0.0.1:{server.server_port}"
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            monkeypatch.setenv(name, "testing")
        for name in ("AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST"):
            monkeypatch.setenv(name, address)
        yield open_bucket(f"{request.param}://bucket")
        server.shutdown()


@pytest.mark.parametrize("is_direct", [True, False], ids=["obstore", "client"])
def test_an_object_ends_where_it_was_asked_to_end(
    endless: BucketStore, is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_direct:
        endless.__dict__["_direct"] = None
    with raises(OutputError, f"{endless.url}/a", "more than the 4 bytes"):
        endless.range("a", 0, 4)
    monkeypatch.setattr(Endless, "status", 200)
    with raises(OutputError, f"{endless.url}/a", "1,000,000,000,000 bytes", "memory"):
        endless.range("a")


@pytest.mark.parametrize("prefix", ["same", "endless", "more"])
def test_a_listing_ends(endless: BucketStore, prefix: str) -> None:
    with constants(bucket_store, MOST_LISTED=20 << 19), raises(OutputError, f"{endless.url}/{prefix}"):
        endless.listed(prefix)


def test_a_refusal_ends(endless: BucketStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Endless, "status", 403)
    endless.__dict__["_direct"] = None  # obstore reads it whole: docs/security.md
    with raises(OutputError, f"{endless.url}/a"):
        endless.range("a", 0, 4)
