"""What a reject tells and what it does not; what never is one: memory, the machine, a decoder that failed once."""

import errno
import io
import json
import threading
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
import tensorflow as tf
from PIL import Image

from recordmill.pipeline.build.beam.filesystem import BeamFiles
from recordmill.pipeline.build.images.read import BuildImageReader, MemoryGate, PixelMeter, pixel_graph, retry_alone
from recordmill.pipeline.build.images.transcode import decodable, decoding_of
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.summaries.look import rows_behind
from recordmill.pipeline.build.worker.batch import BatchTransformer, RowBatch, StoredGraph
from recordmill.pipeline.build.worker.keyed_rows import key_rows
from recordmill.pipeline.dataset.counts import Counts
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.encoded import Inflated
from recordmill.pipeline.sources.faults import REASONS, Reject
from recordmill.pipeline.sources.files import OutOfMemoryError, is_machine_fault
from recordmill.pipeline.sources.formats.tar_samples import Tar
from recordmill.pipeline.sources.formats.text import read_texts
from recordmill.pipeline.sources.images import inline
from recordmill.pipeline.spec.model import parse_spec
from recordmill.transforms.images.image_header import ImageError, read_header
from tests.messages import raises
from tests.pictures import options, saved

OPTIONS = options()


GIF, PNG = (saved(Image.effect_noise((9, 7), 90).convert("RGB"), form) for form in ("GIF", "PNG"))
INVALID = tf.errors.InvalidArgumentError(None, None, "Invalid JPEG data or crop window")
EXHAUSTED = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")


class Failing:
    """A function that raises some errors, one a call, before it works."""

    def __init__(self, *errors: BaseException | None, function: Any = lambda: "done") -> None:
        self._errors, self._function, self.calls = list(errors), function, 0

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.calls += 1
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        return self._function(*given, **named)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (pa.ArrowMemoryError(), True),
        (ImportError(), True),
        *((OSError(number, "no"), True) for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO)),
        (OSError("image file is truncated"), False),
        (FileNotFoundError(errno.ENOENT, "no"), False),
        (ValueError(), False),
    ],
)
def test_what_is_the_machines_fault(error: Exception, expected: bool) -> None:
    assert is_machine_fault(error) == expected


def test_what_fails_once_is_done_again_and_what_fails_twice_is_believed() -> None:
    once, twice = Failing(ValueError("a")), Failing(ValueError("a"), ValueError("b"))
    assert retry_alone(once, "do it", (ValueError,)) == "done"
    with raises(ValueError, "b"):
        retry_alone(twice, "do it", (ValueError,))
    other = Failing(KeyError("a"))
    with pytest.raises(KeyError):
        retry_alone(other, "do it", (ValueError,))
    assert (once.calls, twice.calls, other.calls) == (2, 2, 1)


def test_the_second_time_nothing_else_is_under_way() -> None:
    gate, running, most, alone = MemoryGate(), Counter[str](), [0], list[int]()
    all_at_once = threading.Barrier(6)

    def work(fails: bool) -> None:
        tries, calls = 0, 0

        def action() -> None:
            nonlocal tries, calls
            tries, calls = tries + 1, calls + 1
            running["now"] += 1
            most[0] = max(most[0], running["now"])
            if calls == 1:
                all_at_once.wait()
            if tries == 2:
                alone.append(running["now"])
            running["now"] -= 1
            if fails and tries == 1:
                raise ValueError

        for _ in range(5):
            tries = 0
            retry_alone(action, "do it", (ValueError,), gate=gate)

    threads = [threading.Thread(target=work, args=(number % 2 == 0,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
        assert not thread.is_alive()
    assert alone == [1] * 15
    assert most[0] == 6


@pytest.mark.parametrize(
    "error", [MemoryError(), ImportError("no module"), OSError(errno.ENOSPC, "full"), OSError(errno.EMFILE, "files")]
)
def test_pillow_without_memory_says_nothing_of_the_image(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_header(GIF).in_graph is False
    monkeypatch.setattr(Image, "open", Failing(error))
    with pytest.raises(type(error)):
        decodable(GIF, decoding_of(OPTIONS))


@pytest.mark.parametrize(
    ("error", "expected", "facts"),
    [
        (MemoryError(), OutOfMemoryError, [f"{len(GIF)} bytes"]),
        (OSError("out of memory when reading image file"), ImageError, ["GIF", "damaged"]),
    ],
)
def test_an_image_is_loaded_again_and_what_fails_alone_too_is_believed(
    error: Exception, expected: type[Exception], facts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, opened = BuildImageReader(BeamFiles(), [""], ""), Image.open
    monkeypatch.setattr(Image, "open", Failing(error, function=opened))
    assert ("transcoded", "GIF") in reader.load(0, inline(GIF), OPTIONS).counts
    monkeypatch.setattr(Image, "open", Failing(error, error))
    with raises(expected, *facts):
        reader.load(0, inline(GIF), OPTIONS)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    ("errors", "is_measured"), [((INVALID,), True), ((INVALID, INVALID), False), ((), True), ((EXHAUSTED,), True)]
)
def test_statistics_leave_out_only_what_is_damaged_twice(errors: tuple[Exception, ...], is_measured: bool) -> None:
    graph = Failing(*errors, function=pixel_graph(OPTIONS))
    pixels, _, _ = PixelMeter(BuildImageReader(BeamFiles(), [""], ""), OPTIONS, graph).measure([0], [inline(PNG)])
    assert (pixels[0] > 0) == is_measured


def transformer(graph: Any) -> BatchTransformer:
    """Transforms with a graph of the test's own."""
    return BatchTransformer(graph, {"image": "photo"}, lambda name, data: data != b"bad")


@pytest.fixture
def batch() -> RowBatch:
    """Three rows, of which the second has a bad image."""
    rows = pa.table({"@key": [b"a", b"b", b"c"], "@chunk": [0, 0, 0], "@position": [4, 5, 6]})
    return RowBatch(rows, {"image": [b"good", b"bad", b"good"]}, files={}, looks={}, needs=0)


def graph(*failures: Exception) -> Failing:
    """A graph that fails so often, and then decodes all but what is bad; it gives what it decoded."""

    def decode(batch: RowBatch) -> Any:
        if b"bad" in batch.images["image"]:
            raise INVALID
        return batch.images

    return Failing(*failures, function=decode)


@pytest.mark.parametrize("failures", [(), (INVALID,), (EXHAUSTED,), (MemoryError(),)])
def test_a_good_row_whose_graph_fails_once_is_kept_and_a_bad_one_is_not(
    batch: RowBatch, failures: tuple[Exception, ...]
) -> None:
    failing = graph(INVALID, *failures)  # the whole batch, then row by row
    kept, stored = transformer(failing)(batch)
    (reject,) = kept.rejects
    assert kept.rows["@key"].to_pylist() == [b"a", b"c"]
    assert stored == {"image": [b"good", b"good"]}
    assert (reject.reason, reject.key, reject.column) == ("undecodable_image", "b", "photo")
    assert failing.calls == 1 + 4 + len(failures) + 1  # the bad row twice


def test_an_error_that_no_image_causes_is_raised(batch: RowBatch) -> None:
    with raises(tf.errors.InvalidArgumentError, "Invalid JPEG data"):
        BatchTransformer(graph(), {"image": "photo"}, lambda name, data: True)(batch)
    with raises(UserError, "mine:own", "InvalidArgumentError", "row: 'b'"):
        BatchTransformer(graph(), {}, lambda name, data: True, "mine:own")(batch)


def test_inputs_that_do_not_fit_the_graph_fail_in_every_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = {"input_specs": {"x": tf.TensorSpec([None], tf.int64)}, "unpack_graph": "", "transform_graph": dict}
    for name, value in replaced.items():
        monkeypatch.setattr(f"{StoredGraph.__module__}.{name}", lambda *_, value=value: value)
    stored = StoredGraph(SimpleNamespace(encoded=list, images=dict, workspace=None, export=""))  # type: ignore[arg-type]
    wrong = RowBatch(pa.table({"x": pa.array([1.5], pa.float32())}), {}, {}, {}, 0)
    for _ in range(2):  # a lock that a thread keeps stops the next
        with ThreadPoolExecutor(1) as pool, pytest.raises((TypeError, ValueError)):
            pool.submit(stored, wrong).result()


def test_rows_are_not_rejected_because_memory_is_short(batch: RowBatch) -> None:
    with raises(OutOfMemoryError, "3 rows", "transform graph"):
        transformer(graph(EXHAUSTED, EXHAUSTED))(batch)


def test_a_tar_file_or_a_stream_read_without_memory_is_not_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarfile.TarFile.next", Failing(MemoryError()))
    with pytest.raises(MemoryError):
        list(Tar(io.BytesIO(bytes(10_240)), 10_240))
    stream = SimpleNamespace(eof=False, decompress=Failing(zlib.error("Error -4 while decompressing data")))
    monkeypatch.setattr(zlib, "decompressobj", lambda _: stream)
    with pytest.raises(MemoryError):
        Inflated(io.BytesIO(b"data")).read()


class FailsOnce(BeamFiles):
    """Files of which the first that is opened cannot be read."""

    def __init__(self, error: OSError) -> None:
        self.opened, self._error = 0, error

    def open(self, path: str) -> BinaryIO:
        self.opened += 1
        return super().open(path) if self.opened > 1 else Unreadable(self._error)


class Unreadable(io.BytesIO):
    def __init__(self, error: OSError) -> None:
        self._error = error

    def read(self, size: int | None = -1) -> bytes:
        raise self._error


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (OSError("inflate failed"), b"text"),  # a connection that was lost, for all we know
        (OSError(errno.EMFILE, "Too many open files"), None),
        (OSError(errno.EIO, "Input/output error"), None),
    ],
)
def test_a_text_is_unreadable_only_where_its_file_is(tmp_path: Path, error: OSError, found: bytes | None) -> None:
    with pa.CompressedOutputStream(str(tmp_path / "a.txt.gz"), "gzip") as file:
        file.write(b"text")
    files = FailsOnce(error)
    if found is None:
        with pytest.raises(OSError, match="Too many open files|Input/output error"):
            next(read_texts(files, str(tmp_path), ["a.txt.gz"]))
    else:
        assert list(read_texts(files, str(tmp_path), ["a.txt.gz"])) == [found]
        assert files.opened > 1


@pytest.mark.parametrize(
    ("features", "behind"),
    [
        ("n: {kind: number}, q: {kind: number, quantiles: 4}, m: {kind: number, normalize: none}", {"n": 4, "q": 4}),
        ("y: {kind: category}, c: {kind: categories}, g: {kind: category, classes: [a]}", {"y": 9, "c": 4}),
        ("t: {kind: text}, b: {kind: text, tokenizer: bytes}", {"t": 4}),
        ("s: {kind: text, tokenizer: sentencepiece}", {"s": 4}),
        ("i: {kind: image, size: 8, normalize: dataset}, j: {kind: image, size: 8}", {"i": 2}),
    ],
)
def test_late_rejects_are_counted_by_the_features_that_learned_from_them(
    tmp_path: Path, features: str, behind: dict[str, int]
) -> None:
    label = "label: y" if "y:" in features else ""
    (tmp_path / "r.jsonl").write_text(json.dumps(dict.fromkeys("nqmycgtsbij")))
    text = f"name: e\nsource: {{format: jsonl, path: {tmp_path}/r.jsonl}}\nfeatures: {{{features}}}\n{label}"
    plan = make_plan(parse_spec(text), BeamFiles())
    planned = planned_build(plan, str(tmp_path), BeamFiles(), inline=True, threads=1)
    counts = {"train": Counts(rejected=4, at_fault={"i": 2}), "test": Counts(rejected=5)}
    assert rows_behind(planned, counts) == behind


SECRET = "SECRET7"
BAD_LINES = [
    f'{{"n": "{SECRET}"}}', f'{{"n": ["{SECRET}"]}}', f'{{"n": {{"{SECRET}": 1}}}}', f'{{"n": {SECRET}}}', SECRET,
    f'{{"n": 1, "n": "{SECRET}"}}', f'{{"n": 1, "l": "{SECRET}\\ud800"}}', f'{{"n": 1, "l": "{SECRET}"}}',
    f'{{"n": 1, "l": "x", "p": "/etc/{SECRET}"}}', f'{{"n": 1, "l": "x", "p": "data:{SECRET}"}}',
    f'{{"n": 1, "l": "x", "p": "data:;base64,{SECRET}!"}}', f'{{"n": "\\{SECRET}"}}', f'{{"n": "{SECRET}\x01"}}',
]  # fmt: skip
BAD_RECORDS = [f"{SECRET},x,a", f"1,{SECRET},a", f"1,x,/etc/{SECRET}", f"1,{SECRET}", f'"{SECRET}"x,1,a', f'"{SECRET}']


def test_no_message_holds_a_value(tmp_path: Path) -> None:
    good = '{"n": 1, "l": "x", "p": "a.png"}'
    (tmp_path / "a.jsonl").write_text("\n".join([good, *BAD_LINES]))
    (tmp_path / "b.csv").write_text("\n".join(["n,l,p", "1,x,a", *BAD_RECORDS]))
    spec = parse_spec(
        f"name: a\nsource: [{{format: jsonl, path: {tmp_path}/a.jsonl}}, {{format: csv, path: {tmp_path}/b.csv}}]\n"
        "features: {n: {kind: number}, l: {kind: category, classes: [x]}, p: {kind: image, size: [4, 4]}}\nlabel: l\n"
    )
    plan, found = make_plan(spec, BeamFiles()), list[Reject]()
    work = planned_build(plan, "", BeamFiles(), inline=True, threads=1)
    for chunk in plan.chunks:
        for block in work.readers[chunk.source].read(chunk, BeamFiles(), work.schema.columns, work.schema.source_key):
            found += key_rows(block, chunk, work.schema, work.layout)[1]
    assert len(found) == len(BAD_LINES) + len(BAD_RECORDS)
    assert [reject.message for reject in found if SECRET in reject.message] == []
    assert {reject.reason for reject in found} <= REASONS.keys()
