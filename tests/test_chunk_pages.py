"""A job's graph: it does not grow with the names of files, which workers read; IPython does not change it."""

import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils import interactive_utils

from recordmill.pipeline.build.beam.runner import JobPipeline
from recordmill.pipeline.build.beam.steps import ListChunks, read_chunk
from recordmill.pipeline.build.context.build_context import PAGE_CHUNKS, ChunkPages
from recordmill.pipeline.build.context.reports import read_report
from recordmill.pipeline.sources.batches import pack
from recordmill.pipeline.sources.source_reader import Chunk, WholeFiles
from recordmill.pipeline.versions.stores.base import OutputError
from recordmill.pipeline.versions.stores.local import LocalStore
from tests.messages import raises


def chunks(count: int, names: int = 3) -> list[Chunk]:
    return [
        Chunk(number, 0, "", 1000, WholeFiles(pack([f"{number:06d}/{name:06d}.jpg" for name in range(names)])))
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [0, 1, PAGE_CHUNKS, PAGE_CHUNKS + 1, 3 * PAGE_CHUNKS - 1])
def test_a_chunk_is_read_by_its_position(tmp_path: Path, count: int) -> None:
    listed = chunks(count)
    pages: ChunkPages = pickle.loads(pickle.dumps(ChunkPages.write(LocalStore(str(tmp_path)), listed)))
    assert [pages.read(position) for position in range(len(pages))] == listed


def test_large_chunks_share_no_page(tmp_path: Path) -> None:
    large = [Chunk(number, 0, "", 1, b"%d" % number + bytes(9 << 20)) for number in range(3)]
    pages = ChunkPages.write(LocalStore(str(tmp_path)), large)
    assert pages.bounds == (0, 1, 2, 3)


def test_a_second_job_over_the_same_chunks_writes_nothing(tmp_path: Path) -> None:
    workspace, listed = LocalStore(str(tmp_path)), chunks(2 * PAGE_CHUNKS)
    first = ChunkPages.write(workspace, listed)
    before = workspace.stamps("chunks")
    assert (ChunkPages.write(workspace, listed), workspace.stamps("chunks")) == (first, before)
    assert ChunkPages.write(workspace, listed[7:]).read(0) == listed[7]


def test_a_page_that_is_gone_or_that_somebody_else_wrote_is_named_and_not_unpickled(tmp_path: Path) -> None:
    pages = ChunkPages.write(LocalStore(str(tmp_path)), chunks(2))
    (page,) = pages.workspace.sizes("chunks")
    pages.workspace.write(page, pack(chunks(3)))
    with raises(OutputError, page, "driver"):
        pages.read(0)
    pages.workspace.delete(page)
    with raises(FileNotFoundError, page, "another attempt"):
        pages.read(0)


def test_the_graph_does_not_grow_with_the_names(tmp_path: Path) -> None:
    def graph_bytes(count: int, names: int) -> int:
        pipeline = beam.Pipeline()
        _ = pipeline | "ListChunks" >> ListChunks(LocalStore(str(tmp_path)), chunks(count, names))
        return len(pipeline.to_runner_api().SerializeToString())

    few = graph_bytes(200, names=10)
    assert few < 40_000
    assert abs(graph_bytes(200, names=5_000) - few) < 100  # a million names
    assert graph_bytes(4_000, names=10) - few < 1_000  # a few bytes for each page, none for a chunk


def test_a_job_sees_each_chunk_once(tmp_path: Path) -> None:
    listed = chunks(PAGE_CHUNKS + 9)
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read = pipeline | "ListChunks" >> ListChunks(LocalStore(str(tmp_path)), listed)
        assert_that(read, equal_to(listed))


class Away(LocalStore):
    """A workspace whose store refuses to be read."""

    def read(self, name: str) -> bytes | None:
        raise OutputError("the store is away")


def test_a_page_that_cannot_be_read_is_an_error_of_the_worker(tmp_path: Path) -> None:
    ChunkPages.write(LocalStore(str(tmp_path)), chunks(2))
    pages = ChunkPages.write(Away(str(tmp_path)), chunks(2))
    with raises(OutputError, "store is away"):
        read_chunk(pages, 0)
    left = read_report(LocalStore(str(tmp_path)), "error")
    assert left is not None
    assert left["message"] == "the store is away"


def test_ipython_changes_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(execution_count=7, config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with JobPipeline(runner=FnApiRunner()) as job:
        _ = job | "Two" >> beam.Create([1, 2])
    assert "Two" in job.applied_labels
    assert not Path(job.local_tempdir).exists()
    assert "apache_beam.runners.interactive.interactive_environment" not in sys.modules
    assert interactive_utils.is_in_ipython(), "other pipelines are the session's own"
