"""`report.html`: its content and escaping, also in a real browser."""

import base64
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import DatasetError, read_manifest
from recordmill.pipeline.facts.charts import HistogramChart, histogram, names, places, short
from recordmill.pipeline.facts.contents import read_contents
from recordmill.pipeline.facts.page import report_of
from recordmill.pipeline.facts.painting import content_of, hatched, mask_color
from recordmill.pipeline.facts.sample import background_of
from recordmill.pipeline.facts.sidecars import SIDECARS
from tests import published, shown
from tests.chromium import Page, program
from tests.messages import assert_names, raises


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    output = tmp_path_factory.mktemp("shown")
    shown.write_version(output)
    return report_of(open_dataset(output)).decode("utf-8")


def numbers(*values: float) -> Histogram:
    return Histogram.of(np.array(values, np.float32))


def test_a_report_says_what_the_version_knows(page: str) -> None:
    assert_names(page, "40 rows written", "1 of 41 rows", "header", "pixels", "also in train", "beyond", "limit")
    assert_names(page, "price</bdi></h3>", "Most frequent words", "Boxes a row", "Brightness")
    assert_names(page, "23.1% of train", "47.4% of test")


@pytest.mark.parametrize(
    ("size", "margins"),
    [((24, 48), (12, 12)), ((48, 18), (15, 15)), ((48, 23), (12, 13)), ((48, 48), (0, 0)), ((40, 40), None)],
)
@pytest.mark.parametrize("form", ["PNG", "JPEG"])
def test_padding_is_hatched(form: str, size: tuple[int, int], margins: tuple[int, int] | None) -> None:
    """The last is in the middle of a white photo: no padding."""
    square = Image.new("RGB", (48, 48), "white")
    square.paste(Image.new("RGB", size, "#204080"), ((48 - size[0]) // 2, (48 - size[1]) // 2))
    file = io.BytesIO()
    square.save(file, form, quality=95)
    stored = Image.open(file).convert("RGB")
    content = content_of(stored, (255, 255, 255))
    assert (content == (0, 0, 48, 48)) == (margins in (None, (0, 0)))
    pixels = np.asarray(hatched(stored, content))
    changed = (pixels != np.asarray(stored)).any(-1)
    lines = changed.all(0) if size[0] < 48 else changed.all(1)
    found = int(lines.argmin()), int(lines[::-1].argmin())
    assert np.abs(np.subtract(found, margins or (0, 0))).max() <= 1
    assert hatched(stored, content_of(stored, None)) is stored
    assert background_of({"fit": "pad", "size": [48, 48], "background": [1, 2, 3]}) == (1, 2, 3)
    assert background_of({"fit": "crop", "size": [48, 48], "background": [1, 2, 3]}) is None


def test_boxes_carry_their_names_with_a_legend(page: str) -> None:
    legend = page.split('<ul class="legend" aria-label="Boxes">')[1].split("</ul>")[0]
    assert legend.count("<li>") == len(shown.CLASSES)
    colors = re.findall(r'stroke="(#\w+)"', legend)
    assert len({*colors}) == len(shown.CLASSES)
    assert {*colors} <= {mask_color(number) for number in range(1, 9)}, "as masks have"
    assert page.count('class="called"') == page.count('<rect class="box named"') - legend.count("<rect")


def test_the_published_page_is_that_of_the_command_without_the_gate(page: str, tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path)
    manifest = read_manifest(folder)
    published_page = SIDECARS["report.html"](folder, manifest).decode("utf-8")
    dataset = Dataset(folder, replace(manifest, gate={}))
    assert published_page == report_of(dataset).decode("utf-8")
    assert 'href="#changes"' in page
    assert 'href="#changes"' not in published_page


def test_chats_are_whole_with_their_trained_text_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, said = published.row, {"text": [2] * 400 + [3, 4], "text_loss_mask": [0] * 400 + [1, 1]}
    monkeypatch.setattr(published, "row", lambda number: row(number) | said)
    features = published.FEATURES | {"text": published.FEATURES["text"] | {"kind": "chat", "train": "last"}}
    ids = {"trained": 2, "stored": 400, "before cutting": 900, "chats cut": 2}
    counts = {"text": {"messages": {"user": 3}, "ids": ids}}
    spec = {"features": {"text": {"model": "m"}}}
    published.write_version(tmp_path, 20, features=features, spec=spec, statistics=counts)
    page = report_of(open_dataset(tmp_path)).decode("utf-8")
    assert page.count("<mark><bdi>tree über</bdi></mark>") == 3
    said = "3 user messages, 0.5% of 400 tokens trained; 2 chats cut, 900 tokens before"
    assert_names(page, "a " * 399, said, "<dt>given</dt>", "the assistant&#39;s last turn")


def test_the_page_of_a_class_shows_more_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published.write_version(tmp_path)
    page = report_of(open_dataset(tmp_path), label="dark").decode("utf-8")
    dark = open_dataset(tmp_path).label_counts("train")["dark"]
    assert page.count('<tr><th scope="row" class="mono"><bdi>row/') == dark > 24
    assert ("<td><bdi>bright</bdi></td>" in page, "note 1" in page) == (False, False)
    monkeypatch.setattr(published, "row", lambda number, row=published.row: row(number) | {"label": 0})
    published.write_version(tmp_path / "one", 20)
    page = report_of(open_dataset(tmp_path / "one"), label=published.CLASSES[1]).decode("utf-8")
    assert_names(page, f"train has none of the class &#39;{published.CLASSES[1]}&#39;")
    with raises(DatasetError, "'drak'", "`dark`"):
        report_of(open_dataset(tmp_path), label="drak")


def test_words_that_were_counted_with_forgotten_rows_are_left_out(page: str, tmp_path: Path) -> None:
    shown.write_version(tmp_path, provenance={"forgotten": {"keys": 1, "learned_of": "before"}})
    without = report_of(open_dataset(tmp_path)).decode("utf-8")
    assert_names(without, "Forgotten rows are among the counts")
    assert "Most frequent words" in page
    assert "Most frequent words" not in without
    assert "Rarest words" not in without
    assert_names(without, "left out", "forgotten")


def test_large_counts_of_words_are_left_to_the_command(page: str, tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path)
    file, manifest = "summaries/vocabularies/bucket-003.arrow", read_manifest(folder)
    entry = {**manifest.files[file], "bytes": (64 << 20) + 1}
    published_page = SIDECARS["report.html"](folder, replace(manifest, files={**manifest.files, file: entry}))
    assert b"Most frequent words" not in published_page
    assert "Most frequent words" in page


def test_words_of_several_files_are_counted_together(tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path)
    rng = np.random.default_rng(5)
    counts = {f"word{number:03}": int(count) for number, count in enumerate(rng.integers(1, 60, 199))}
    counts["y" * 9_999] = 70
    for bucket, each in enumerate(np.array_split(np.array(sorted(counts)), 8)):
        own = [str(word) for word in each]
        columns = {"feature": ["caption"] * len(own), "word": [word.encode() for word in own]}
        table = pa.table({**columns, "count": [counts[word] for word in own]})
        with pa.ipc.new_stream(str(folder / f"summaries/vocabularies/bucket-{bucket:03}.arrow"), table.schema) as file:
            file.write_table(table)
    words = read_contents(open_dataset(tmp_path)).words["caption"]
    assert (words.distinct, words.total) == (200, sum(counts.values()))
    assert words.once == sum(count == 1 for count in counts.values()) > 0
    assert words.frequent == sorted(counts.items(), key=lambda each: (-each[1], each[0]))[:20]
    assert words.rare == sorted(counts.items(), key=lambda each: (each[1], each[0]))[:20]
    assert max(map(len, re.findall("y+", report_of(open_dataset(tmp_path)).decode()))) < 200


def test_a_page_that_cannot_be_made_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path)
    monkeypatch.setitem(sys.modules, "recordmill.pipeline.facts.page", None)
    page = SIDECARS["report.html"](folder, read_manifest(folder)).decode()
    assert_names(page, "No report", "ModuleNotFoundError", "`recordmill report`")


def test_a_damaged_shard_leaves_the_counts(tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path)
    shard = folder / read_manifest(folder).splits["train"].shards[0].file
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    page = report_of(open_dataset(tmp_path)).decode("utf-8")
    assert_names(page, "shown-train", "40 rows written")
    assert 'id="examples"' not in page


def test_images_of_rejects_are_shown_where_the_sources_are(tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path / "out")
    (folder / shown.REJECTS).write_text(json.dumps({**shown.REJECT, "file": "a.png"}) + "\n")
    (tmp_path / "in").mkdir()
    Image.new("RGB", (30, 20), "red").save(tmp_path / "in/a.png")
    dataset = open_dataset(tmp_path / "out")
    shown_images = [report_of(dataset, sources).count(b'class="reject"') for sources in (None, tmp_path / "in")]
    assert shown_images == [0, 1]


def test_nothing_of_the_data_is_markup_and_the_page_allows_its_own_style_alone(page: str) -> None:
    assert "<script" not in page
    assert not re.search(r"<[^>]*\son\w+=", page)
    assert "http:" not in re.sub(r"<bdi>.*?</bdi>", "", page, flags=re.DOTALL).replace("&#34;", '"').split("<main")[0]
    assert page.count("<style") == 1
    assert "nul\\x00" in page, "control characters are shown"
    assert "\\udcff\\udcfe not utf-8" in page, "bytes beyond UTF-8 are shown"
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest}';")
    assert "style=" not in page


@pytest.mark.parametrize("rows", [200, 0])
def test_a_version_of_an_earlier_recordmill_or_without_records_has_a_report(tmp_path: Path, rows: int) -> None:
    published.write_version(tmp_path, rows)
    page = report_of(open_dataset(tmp_path)).decode("utf-8")
    assert "malformed_row" in page
    assert ('aria-label="Examples"' in page) == (rows > 0)
    assert "Most frequent words" not in page
    (line,) = re.findall(r'<li><a href="#splits">.*train.*</li>', page) or [""]
    assert ("no records" in line) == (rows == 0)


def test_bins_have_nice_edges_and_hold_every_value() -> None:
    values = np.random.default_rng(0).normal(50, 10, 1000).astype(np.float32)
    chart = histogram("x", {"train": Histogram.of(values), "empty": numbers()}, whole=False)
    assert chart is not None
    assert [each.name for each in chart.series] == ["train"]
    assert chart.series[0].total == 1000
    assert len(chart.bars) == len(chart.bins) <= 40


FIVES = [f"{start} to {start + 4}" for start in range(0, 101, 5)]


@pytest.mark.parametrize(("values", "bins"), [([3, 3], ["3"]), ([0, 1, 2, 5], [*"012345"]), ([0, 100], FIVES)])
def test_bins_of_whole_numbers_cut_none(values: list[float], bins: list[str]) -> None:
    chart = histogram("x", {"train": numbers(*values)}, whole=True)
    assert isinstance(chart, HistogramChart)
    assert list(chart.bins) == bins
    assert chart.series[0].total == len(values)


def test_missing_values_stand_beside_the_counts_and_outliers_have_bins_of_their_own() -> None:
    parts = {"train": numbers(-1, 0), "test": numbers(-1)}
    chart, complete = (histogram("x", parts, whole=True, missing=of) for of in ({"train": 0, "test": 3}, {}))
    assert chart is not None
    assert complete is not None
    assert (chart.bins, chart.missing, complete.missing) == (("-1", "0"), (0, 3), ())
    chart = histogram("x", {"train": numbers(*np.linspace(0, 1, 999).tolist(), 1e9)}, whole=False)
    assert chart is not None
    assert chart.bins[-1].endswith("or more")
    assert chart.series[0].total == 1000
    assert histogram("x", {"train": numbers()}, whole=True) is None


def test_names_stand_by_their_counts() -> None:
    chart = names("x", "class", {"train": [1, 9], "test": [0, 0]}, ["cat", "dog"])
    assert chart is not None
    rows = [(row.name, row.counts, row.lengths) for row in chart.rows]
    assert rows == [("dog", (9, 0), (100.0, 0.0)), ("cat", (1, 0), (11.1, 0.0))]
    assert names("x", "class", {}, []) is None


def test_places_show_what_boxes_cover() -> None:
    cells = np.array(places("x", np.array([[0.0, 0.5, 0.5, 1.0], [0.0, 0.5, 0.01, 0.51]])).cells)
    assert cells[0, 8] == 1
    assert cells[7, 15] == 0.5
    assert cells[8:].sum() == cells[:, :8].sum() == 0


def test_labels_of_numbers_are_short() -> None:
    shown = {0: "0", 1234: "1,234", 0.1 + 0.2: "0.3", 2.5e6: "2.5M", -7e9: "-7B", 3e20: "3e+20"}
    assert {number: short(number) for number in shown} == shown


needs_browser = pytest.mark.skipif(program() is None, reason="there is no Chromium: apt-get install chromium")


@needs_browser
def test_a_browser_shows_the_page_and_loads_nothing(page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    with Page(tmp_path / "profile") as browser:
        for width, dark in ((1280, False), (360, True)):
            browser.size(width, 800, dark=dark)
            browser.open(file.as_uri())
            assert browser.requests() == []
            assert browser.complaints() == []
            assert browser.evaluate("document.images.length") > 10
            broken = "[...document.images].filter(image => image.complete && !image.naturalWidth).length"
            assert browser.evaluate(broken) == 0
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, "nothing is wider than the page"
            assert browser.evaluate("(menu => menu.scrollWidth <= menu.clientWidth)(document.querySelector('nav ul'))")
            ground = browser.evaluate("getComputedStyle(document.body).backgroundColor")
            assert ground == ("rgb(16, 20, 24)" if dark else "rgb(255, 255, 255)")
            assert browser.evaluate("document.querySelectorAll('script, iframe, object, embed, link').length") == 0
            assert browser.evaluate("document.querySelector('h1').innerText") == "shown"


@needs_browser
def test_the_page_is_for_keyboards_and_screen_readers_too(page: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page, encoding="utf-8")
    with Page(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        for kind in ("keyDown", "keyUp"):
            browser.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        assert browser.evaluate("document.activeElement.innerText") == "Skip to the content"
        assert browser.evaluate("document.querySelectorAll('img:not([alt])').length") == 0
        unnamed = "[...document.querySelectorAll('svg[role=img]')].filter(each => !each.querySelector('title')).length"
        assert browser.evaluate(unnamed) == 0
        hidden = "[...document.querySelectorAll('svg:not([role=img])')].every(each => each.ariaHidden === 'true')"
        assert browser.evaluate(hidden) is True
        wide = "[...document.querySelectorAll('.scroll')].every(each => each.tabIndex === 0 && each.ariaLabel)"
        assert browser.evaluate(wide) is True
        links = "[...document.querySelectorAll('a')].filter(each => !document.querySelector(each.getAttribute('href')))"
        assert browser.evaluate(f"{links}.length") == 0
        levels = "[...document.querySelectorAll('h1, h2, h3, h4')].map(each => +each.tagName[1])"
        assert browser.evaluate(f"{levels}.every((each, at, all) => !at || each <= all[at - 1] + 1)") is True


@needs_browser
def test_a_browser_reports_what_a_page_must_not_do(tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text("<script>alert('hello'); console.error('oh')</script><img src='http://127.0.0.1:9/x'>")
    with Page(tmp_path / "profile") as browser:
        browser.open(file.as_uri())
        assert browser.requests() == ["http://127.0.0.1:9/x"]
        assert "hello" in browser.complaints()
        assert any("oh" in line for line in browser.complaints())
