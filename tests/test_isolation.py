"""A decoder that crashes, hangs or eats memory costs one image; others are as without isolation."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from recordmill.pipeline.build.images.isolation import Isolation, IsolationError
from recordmill.pipeline.build.images.transcode import UndecodableError, decodable
from recordmill.transforms.images.image_header import ImageError
from tests.forked import wait_until_ended
from tests.hostile_decoder import CRASH, EAT, FINE, HANG, QUIT, SPIN
from tests.messages import raises
from tests.pictures import animated, saved, turned
from tests.profiles import P3

DECODER = "tests.hostile_decoder:decode"
OPTIONS = {"max_pixels": 5_000}
GOOD = [saved(), saved(progressive=True), saved(form="PNG"), saved(form="WEBP"), saved(form="BMP"), animated("GIF")]
GOOD += [turned("TIFF", 6), saved(form="AVIF"), turned("HEIF", 6), saved()[:-200], saved(form="PNG")[:-80]]
GOOD += [saved(icc_profile=P3), saved(form="HEIF", icc_profile=P3), saved(icc_profile=P3[:200])]


@pytest.fixture(scope="module")
def isolation() -> Iterator[Isolation]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(60)
    made = Isolation(DECODER, seconds=1, wall=10)  # a busy machine is not too slow
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY", "secret")
        yield made
    made.close()
    socket.setdefaulttimeout(before)


def zygotes() -> set[psutil.Process]:
    """Returns the processes that have loaded the decoder and fork one for each thread."""
    return {child for child in psutil.Process().children() if DECODER in child.cmdline()}


def bad(what: bytes) -> bytes:
    return saved(comment=what)


ONE = bad(FINE)


def test_an_image_is_what_it_is_without(isolation: Isolation) -> None:
    assert socket.getdefaulttimeout() == 60, "set by the fixture before the first process, it changes nothing"
    for data in GOOD:
        for keys in ({}, {"color": "ignore"}, {"compress": False}):
            assert isolation.decodable(data, OPTIONS | keys) == decodable(data, OPTIONS | keys)


@pytest.mark.parametrize(
    ("data", "reason", "facts"),
    [
        (bad(CRASH), "undecodable_image", ("JPEG", "crash", "SIGSEGV")),
        (bad(QUIT), "undecodable_image", ("JPEG", "crash", "status 3")),
        (bad(EAT), "undecodable_image", ("JPEG", "memory")),
        (bad(HANG), "too_slow", ("JPEG", "1 s")),
        (bad(SPIN), "too_slow", ("JPEG", "1 s")),
        (b"no image", "unsupported_format", ("no image",)),
        (animated("GIF")[:60], "undecodable_image", ("GIF",)),
        (animated("GIF").replace(b"\x1b\0\x12\0", b"\xff\0\xff\0"), "too_many_pixels", ("255 x 255",)),
    ],
)
def test_what_is_lost_is_one_image(isolation: Isolation, data: bytes, reason: str, facts: tuple[str, ...]) -> None:
    with raises(ImageError, *facts) as error:
        isolation.decodable(data, OPTIONS)
    assert error.value.reason == reason
    assert isinstance(error.value, UndecodableError) == (reason in ("undecodable_image", "too_slow"))  # tried again
    assert isolation.decodable(ONE, OPTIONS) == ONE


def test_a_decoder_that_died_has_a_successor_at_once(isolation: Isolation) -> None:
    """It is forked without loading anything again."""
    isolation.decodable(ONE, OPTIONS)
    before = zygotes()
    assert len(before) == 1
    for _ in range(5):
        with pytest.raises(UndecodableError):
            isolation.decodable(bad(CRASH), OPTIONS)
    assert zygotes() == before


def test_threads_have_decoders_of_their_own(isolation: Isolation) -> None:
    def one(number: int) -> str | bytes:
        try:
            return isolation.decodable(bad(CRASH) if number % 5 == 0 else ONE, OPTIONS)
        except UndecodableError:
            return "crashed"

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(one, range(40)))
    assert found == ["crashed" if number % 5 == 0 else ONE for number in range(40)]


@pytest.mark.nightly
def test_a_decoder_that_does_not_start_is_said() -> None:
    with raises(IsolationError, "start"):
        Isolation("tests.no_such_module:decode").decodable(saved(), OPTIONS)


SPEC = """
name: hostile
source: {{format: jsonl, path: {folder}/rows.jsonl}}
splits: {{train: 100}}
rejects: {{max_share: 0.5}}
features: {{image: {{kind: image, size: 8}}}}
"""


@pytest.mark.slow
def test_a_build_goes_on(isolation: Isolation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recordmill.pipeline.build.build import build
    from recordmill.pipeline.build.run_options import RunOptions
    from recordmill.pipeline.spec.model import parse_spec

    images = [saved(), bad(CRASH), animated("GIF"), bad(QUIT), saved(form="PNG")]
    for number, data in enumerate(images):
        (tmp_path / f"{number}.jpg").write_bytes(data)
    rows = "".join(json.dumps({"image": f"{number}.jpg"}) + "\n" for number in range(len(images)))
    (tmp_path / "rows.jsonl").write_text(rows)
    spec = parse_spec(SPEC.format(folder=tmp_path))
    monkeypatch.setattr("recordmill.pipeline.build.images.read.shared_isolation", lambda: isolation)
    manifest = build(spec, str(tmp_path / "out"), RunOptions(isolated=True)).manifest
    assert manifest.rows["written"] == 3
    assert manifest.rejects["by_reason"] == {"undecodable_image": 2}


@pytest.mark.slow
def test_the_processes_end_with_it_and_have_no_secrets(isolation: Isolation) -> None:
    isolation.decodable(ONE, OPTIONS)
    (zygote,) = zygotes()
    started = [zygote, *zygote.children()]
    assert len(started) > 1
    assert not any("CANARY" in one.environ() for one in started)
    isolation.close()
    wait_until_ended(started)
