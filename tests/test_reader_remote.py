"""Datasets on object stores: the batches of a folder, each block read once, one clear line for what is wrong."""

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import botocore
import numpy as np
import pytest
from google.auth.credentials import AnonymousCredentials

from recordmill import Dataset, DatasetError, open_dataset
from recordmill.pipeline.dataset.manifest import Latest
from recordmill.pipeline.dataset.tfrecord import ShardWriter
from recordmill.pipeline.errors import code_of
from recordmill.pipeline.reader.block_cache import FOLDER, MARK, BlockCache
from recordmill.pipeline.reader.metrics import FETCHED, REQUESTS, RETRIES, Counters
from recordmill.pipeline.reader.order import Lanes, lanes_for
from recordmill.pipeline.reader.records import Records, ShardFile
from recordmill.pipeline.versions.stores import open_store
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.gcs import GcsStore
from recordmill.pipeline.versions.stores.s3 import S3Store
from recordmill.transforms.base.stored import RowError
from tests import emulators, hand_made
from tests.memory_store import Answer, Memory, MemoryStore, memory_store
from tests.messages import raises
from tests.test_reader_input import assert_equal

URL = "memory://bucket/out/hand"


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("remote") / "hand"
    hand_made.write_dataset(output)
    return output


def files(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache that each test finds empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home/recordmill" / FOLDER


@pytest.fixture
def memory(output: Path) -> Iterator[Memory]:
    with memory_store() as memory:
        memory.objects |= {f"{URL}/{name}": data for name, data in files(output).items()}
        yield memory


def check_reads_as(local: Dataset, remote: Dataset) -> None:
    """Compares what two datasets know and give."""
    assert remote.manifest == local.manifest
    assert remote.vocabulary("text") == ["", "[UNK]", *hand_made.WORDS]
    assert remote.vocabulary("colour") == ["[UNK]", *hand_made.COLOURS]
    orders = [{"shuffle": order} for order in ("blocks", "none")]
    for options in ({"shuffle": "global", "verify": True}, {"balance": True}, *orders):
        mine, other = (one.training_input(batch_size=3, seed=1, epochs=2, **options) for one in (local, remote))
        assert_equal(tuple(other), tuple(mine))
    mine, other = (one.evaluation_input("validation", batch_size=2) for one in (local, remote))
    assert_equal(tuple(other), tuple(mine))


def test_a_remote_dataset_is_read_as_a_local_one(memory: Memory, output: Path) -> None:
    check_reads_as(open_dataset(output), open_dataset(URL))


@pytest.mark.parametrize(("path", "version"), [
    (f"{URL}/", None),
    (URL, hand_made.VERSION),
    (URL, hand_made.VERSION[-8:]),
    (f"{URL}/versions/{hand_made.VERSION}", None),
])  # fmt: skip
def test_what_may_be_opened(memory: Memory, path: str, version: str | None) -> None:
    dataset = open_dataset(path, version)
    assert (dataset.version, str(dataset.folder)) == (hand_made.VERSION, f"{URL}/versions/{hand_made.VERSION}")


def test_what_is_published_later_is_seen(memory: Memory) -> None:
    open_dataset(URL)
    with raises(DatasetError, URL, "'v2'", hand_made.VERSION):
        open_dataset(URL, "v2")
    memory.objects |= {url.replace(hand_made.VERSION, "v2"): data for url, data in memory.objects.items()}
    memory.objects[f"{URL}/LATEST"] = Latest("v2", 2).to_text().encode()
    assert str(open_dataset(URL).folder) == f"{URL}/versions/v2"


@pytest.mark.parametrize(("path", "version", "facts"), [
    (URL, "v9", (URL, "'v9'", hand_made.VERSION)),
    (URL, "../v1", ("'../v1'",)),
    (f"{URL}/versions/{hand_made.VERSION}", "v1", (hand_made.VERSION, "leave version='v1' out")),
    (f"{URL}/versions", None, (f"{URL}/versions", "`recordmill build")),
    ("memory://nowhere/out", None, ("'memory://nowhere/out'", "`--output`")),
    ("nothing://bucket/out", None, ("nothing://bucket", "gs://")),
])  # fmt: skip
def test_what_cannot_be_opened_says_why(memory: Memory, path: str, version: str | None, facts: tuple[str, ...]) -> None:
    with raises(DatasetError, *facts):
        open_dataset(path, version)


def read(dataset: Dataset) -> None:
    dataset.vocabulary("text")
    dataset.training_input(batch_size=1)


@pytest.mark.parametrize(("inner", "reads", "facts"), [
    ("text.vocabulary.txt", read, ("text.vocabulary.txt", "build again")),
    ("hand-train.tfrecord-00000-of-00004", read, ("hand-train.tfrecord-00000-of-00004", "build again")),
    ("hand-train.index-00001-of-00004", read, ("hand-train.index-00001-of-00004", "build again")),
    ("LATEST", lambda _: open_dataset(URL), (URL, "`recordmill build")),
    ("dataset.json", lambda _: open_dataset(URL), (f"{URL}/LATEST", hand_made.VERSION)),
])  # fmt: skip
def test_what_is_missing_is_named(
    memory: Memory, inner: str, reads: Callable[[Dataset], Any], facts: tuple[str, ...]
) -> None:
    dataset = open_dataset(URL)
    del memory.objects[next(url for url in memory.objects if url.endswith(inner))]
    with raises(DatasetError, *facts):
        reads(dataset)


FORBIDDEN = Answer(403, "Forbidden")


@pytest.mark.parametrize(("refusals", "facts", "status"), [
    ({"range": FORBIDDEN, "list": FORBIDDEN}, (URL, "Forbidden", "credentials"), 1),
    ({"range": FORBIDDEN}, (f"{URL}/LATEST", "Forbidden", "credentials", "is there"), 1),
    ({"range": RuntimeError("No credentials")}, (f"{URL}/dataset.json", "No credentials"), 1),
    ({"range": TimeoutError("timed out")}, (f"{URL}/dataset.json", "timed out"), 75),
    ({"range": Answer(404, "no bucket"), "list": Answer(404, "no bucket")}, (f"'{URL}'", "`--output`"), 1),
])  # fmt: skip
def test_a_store_that_refuses(
    memory: Memory, refusals: dict[str, Exception], facts: tuple[str, ...], status: int
) -> None:
    memory.refusals = refusals
    with raises(DatasetError, *facts) as raised:
        open_dataset(URL)
    assert code_of(raised.value) == status
    assert raised.value.__suppress_context__ or not raised.value.__context__  # a library's error may hold a secret


def test_objects_are_read_by_a_user_who_may_not_list_them(memory: Memory) -> None:
    memory.refusals = {"list": FORBIDDEN}
    assert len(list(open_dataset(URL).evaluation_input("validation", batch_size=2)))
    with raises(DatasetError, URL, "Forbidden"):
        open_dataset(URL, "v9")


RECORDS, SIZE, BLOCK, GROUP = 600, 3_000, 20, 6


@pytest.fixture
def shards(tmp_path: Path) -> Iterator[list[ShardFile]]:
    """Shards in memory, of which the first ends inside a block, and the second holds nothing."""
    found, objects = [], dict[str, bytes]()
    for number, records in enumerate((range(250), range(0), range(250, RECORDS))):
        file, index = (str(tmp_path / f"{number}.{kind}") for kind in ("tfrecord", "index"))
        with ShardWriter(file, index) as writer:
            writer.write([b"%d" % record * (SIZE // 3) for record in records])
        urls = [f"memory://bucket{path}" for path in (file, index)]
        objects |= {url: Path(path).read_bytes() for url, path in zip(urls, (file, index), strict=True)}
        found.append(ShardFile(*urls, writer.records, writer.bytes, writer.sha256))
    with memory_store() as memory:
        memory.objects |= objects
        yield found


@pytest.fixture
def fetched(shards: list[ShardFile]) -> list[int]:
    """The bytes of each requested range."""
    return MemoryStore.memory.fetched


def epoch(records: Records, threads: int = 2, batch: int = 50) -> None:
    """Reads all records in the order of blocks, and compares them."""
    order = Lanes(RECORDS, 1, RECORDS // BLOCK << 20, lanes=GROUP)(0, np.arange(RECORDS))
    with ThreadPoolExecutor(threads) as pool:
        batches = order.reshape(-1, batch)
        for numbers, read in zip(batches, pool.map(records.read, batches), strict=True):
            assert [bytes(data) for data in read] == [b"%d" % number * (SIZE // 3) for number in numbers]


def test_a_block_is_read_once(shards: list[ShardFile], fetched: list[int]) -> None:
    epoch(Records(shards, np.arange(0, RECORDS, BLOCK)))
    assert sum(fetched) <= 1.1 * sum(shard.bytes for shard in shards)
    assert len(fetched) == 2 + RECORDS // BLOCK + 1  # two indexes; the block that two shards share is read in two parts
    fetched.clear()
    epoch(Records(shards))
    assert sum(fetched) > 1.5 * sum(shard.bytes for shard in shards)  # without blocks, what lies between comes along


@pytest.mark.first(2)
@pytest.mark.parametrize("blocks", [[], [0], [0, 250], [7, 300, 599], range(RECORDS)])
def test_any_blocks(shards: list[ShardFile], fetched: list[int], blocks: Any) -> None:
    records = Records(shards, np.array(blocks, np.int64))
    epoch(records)
    assert sum(fetched) <= 1.1 * sum(shard.bytes for shard in shards)
    fetched.clear()
    epoch(records)
    records.close()
    assert bytes(records.read(np.array([3]))[0]) == b"3" * (SIZE // 3)
    epoch(Records(shards, np.array(blocks, np.int64)))  # as another process does
    assert fetched == []


@pytest.mark.first(1)
@pytest.mark.parametrize("hosts", [1, 4, 8])
def test_hosts_together_fetch_each_byte_once(
    hosts: int, shards: list[ShardFile], fetched: list[int], tmp_path: Path
) -> None:
    order = Lanes(RECORDS, 1, 16 << 20, lanes_for(hosts))
    caches = [BlockCache(str(tmp_path / f"{host}")) for host in range(hosts)]
    for epoch in (0, 1):
        for host in range(hosts):
            positions = np.arange(host, RECORDS, hosts)
            for some in np.array_split(order(epoch, positions), 5):
                worker = Records(shards, order.begins(), caches[host])  # each batch by another process
                assert [bytes(data) for data in worker.read(some)] == [b"%d" % each * (SIZE // 3) for each in some]
        if not epoch:
            assert 1 <= sum(fetched) / sum(shard.bytes for shard in shards) <= 1.05
            fetched.clear()
    assert fetched == []


def test_what_is_fetched_ahead_is_not_asked_for_again(shards: list[ShardFile], fetched: list[int]) -> None:
    counters = Counters()
    records, wanted = Records(shards, np.arange(0, RECORDS, BLOCK), counters=counters), np.arange(0, RECORDS, 7)
    records.fetch_ahead(wanted)
    records.read(wanted)
    assert len(fetched) == 2 + RECORDS // BLOCK + 1
    totals = counters.totals()
    assert totals[REQUESTS] == len(fetched)
    assert totals[FETCHED] == sum(fetched)


def test_damage_on_the_disk_is_fetched_again_and_damage_in_the_store_is_named(
    shards: list[ShardFile], cache: Path
) -> None:
    records, wanted = Records(shards, np.arange(0, RECORDS, BLOCK)), np.arange(3)
    whole = list(map(bytes, records.read(wanted)))
    for file in set(cache.iterdir()) - {cache / MARK}:  # a block and an index
        file.write_bytes(bytes(file.stat().st_size))
    assert list(map(bytes, Records(shards, np.arange(0, RECORDS, BLOCK)).read(wanted))) == whole
    objects = MemoryStore.memory.objects
    data = bytearray(objects[shards[0].file])
    data[20] ^= 1
    objects[shards[0].file] = bytes(data)
    assert list(map(bytes, records.read(wanted))) == whole  # from the cache
    shutil.rmtree(cache)
    with raises(RowError, "checksum of its data"):
        records.read(wanted)


def test_a_replaced_object_is_not_mixed_with_the_old_one(shards: list[ShardFile]) -> None:
    blocks, objects = np.arange(0, RECORDS, BLOCK), MemoryStore.memory.objects
    tagged = Records(shards, blocks).check()
    Records(tagged, blocks).read(np.arange(3))
    objects[shards[0].file] = objects[shards[0].file][:-1] + b"\0"
    with raises(DatasetError, shards[0].file, "replaced", "open"):
        Records(tagged, blocks).read(np.arange(BLOCK, BLOCK + 3))
    assert Records(shards, blocks).check()[0].tags != tagged[0].tags


def test_a_copy_with_other_records_poisons_no_other_dataset(shards: list[ShardFile], tmp_path: Path) -> None:
    """A stranger's manifest states the honest shard's digest, size and records."""
    file, index = (str(tmp_path / f"evil.{kind}") for kind in ("tfrecord", "index"))
    with ShardWriter(file, index) as writer:
        writer.write([b"?" * len(b"%d" % record) * (SIZE // 3) for record in range(250)])
    evil = replace(shards[0], file="memory://evil/a.tfrecord", index="memory://evil/a.index")
    MemoryStore.memory.objects |= {evil.file: Path(file).read_bytes(), evil.index: Path(index).read_bytes()}
    blocks = np.arange(0, RECORDS, BLOCK)
    assert set(b"".join(map(bytes, Records([evil], blocks).read(np.arange(250))))) == {ord("?")}
    epoch(Records(shards, blocks))


def test_no_text_of_a_manifest_names_a_folder_of_the_cache(memory: Memory, cache: Path) -> None:
    url = f"{URL}/versions/{hand_made.VERSION}/dataset.json"
    manifest = json.loads(memory.objects[url])
    shard = manifest["splits"]["train"]["shards"][0]
    digest = shard["sha256"]
    for hostile in ("../../../.bashrc.d", "/tmp/x", digest.upper(), f"{digest}\n", digest[:63], ""):
        shard["sha256"] = hostile
        memory.objects[url] = json.dumps(manifest).encode()
        with raises(DatasetError, "sha256"):
            open_dataset(URL)
    assert not cache.exists()


def test_a_request_that_fails_is_repeated(shards: list[ShardFile]) -> None:
    MemoryStore.memory.failures += [ConnectionResetError("reset"), OSError("503 Slow Down")]
    counters = Counters()
    records = Records(shards, np.arange(0, RECORDS, BLOCK), counters=counters)
    assert [bytes(data) for data in records.read(np.arange(2))] == [b"0" * 1000, b"1" * 1000]
    assert counters.totals()[RETRIES] == 2


@pytest.fixture
def s3(output: Path) -> Iterator[str]:
    with emulators.s3() as url:
        yield put(url, output)
    open_store._shared_bucket.cache_clear()  # whose clients may have no credentials


def put(url: str, output: Path) -> str:
    """Puts the dataset into a bucket."""
    for name, data in files(output).items():
        open_store.open_bucket(url).write_if(name, data, None)
    return url


@pytest.mark.slow
def test_s3(s3: str, output: Path) -> None:
    check_reads_as(open_dataset(output), open_dataset(s3))
    remedies = {"s3://none/hand": "`--output`", f"{s3}/none": "`--output`", f"{s3}/versions": "`recordmill build"}
    for path, remedy in remedies.items():
        with raises(DatasetError, path, remedy):
            open_dataset(path)
    with raises(DatasetError, s3, "'v9'", hand_made.VERSION):
        open_dataset(s3, "v9")


@pytest.mark.slow
def test_a_public_s3_bucket_is_read_without_credentials(
    s3: str, output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = s3.removeprefix(f"s3://{emulators.BUCKET}/")
    for name in files(output):
        boto3.client("s3").put_object_acl(Bucket=emulators.BUCKET, Key=f"{folder}/{name}", ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    open_store._shared_bucket.cache_clear()
    check_reads_as(open_dataset(output), open_dataset(s3))
    assert S3Store(emulators.BUCKET, folder)._client.meta.config.signature_version == botocore.UNSIGNED


def test_a_public_gcs_bucket_is_read_without_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("HOME", str(tmp_path)), ("CLOUDSDK_CONFIG", str(tmp_path)), ("NO_GCE_CHECK", "true")):
        monkeypatch.setenv(name, value)
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(GcsStore("set", "hand")._bucket.client._credentials, AnonymousCredentials)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with raises(OutputError, "gs://set/hand", "none.json"):
        _ = GcsStore("set", "hand")._bucket


@pytest.mark.slow
def test_gcs(output: Path) -> None:
    with emulators.gcs(conditions=True) as url:
        check_reads_as(open_dataset(output), open_dataset(put(url, output)))
        with raises(DatasetError, f"'{url}/none'", "`--output`"):
            open_dataset(f"{url}/none")
