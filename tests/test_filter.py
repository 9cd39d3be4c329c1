"""The user's filter: what it sees and answers, that each pass obeys the first answers, and what nothing learns from."""

import json
import re
import runpy
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

from recordmill import open_dataset
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.context.build_context import PlannedBuild, RowDecisions
from recordmill.pipeline.build.plan.keys import listing_key
from recordmill.pipeline.build.plan.plan import make_plan, planned_build
from recordmill.pipeline.build.worker.filter import FOLDER
from recordmill.pipeline.build.worker.keyed_rows import keyed_blocks
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.facts.contents import read_contents, remarks
from recordmill.pipeline.facts.version import VersionFacts
from recordmill.pipeline.forecast.forecast import Forecast, forecast
from recordmill.pipeline.forget import forget
from recordmill.pipeline.sources.faults import Reject
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.sources.user_code import UserCodeError
from recordmill.pipeline.spec.model import Spec, load_spec
from tests.messages import assert_names, raises
from tests.tables import write_jsonl

SPEC = """
name: a
source: {format: jsonl, path: rows.jsonl}
key: n
splits: {train: 1}
features:
  text: {kind: text}
  n: {kind: number, normalize: none}
filter: FILTER:keep
"""
ROWS = [{"n": number, "text": "ä b c"[: 1 + 2 * (number % 3)]} for number in range(9)]
SHORT = 'def keep(row):\n    return "too short" if len(row["text"]) < 3 else None\n'
CALLS = (
    'CALLS = []\n\ndef keep(row):\n    CALLS.append(row["n"])\n    return "seen before" if len(CALLS) > 4 else None\n'
)


def spec_of(folder: Path, code: str, text: str = SPEC, rows: Any = ROWS) -> Spec:
    """Writes rows, a spec, and the module of its filter, named after the test's folder."""
    name = f"filter_{folder.name}"
    write_jsonl(folder / "rows.jsonl", rows)
    (folder / f"{name}.py").write_text(code)
    (folder / "dataset.yaml").write_text(text.replace("FILTER", name))
    return load_spec(str(folder / "dataset.yaml"))


def planned(folder: Path, code: str, text: str = SPEC, rows: Any = ROWS) -> tuple[PlannedBuild, Any]:
    """Plans a build; returns its workers' part, and its only chunk."""
    files = LocalFiles()
    plan = make_plan(spec_of(folder, code, text, rows), files)
    (chunk,) = plan.chunks
    return planned_build(plan, str(folder / "run"), files, inline=False, threads=2), chunk


def read(work: tuple[PlannedBuild, Any], **more: Any) -> tuple[list[Any], list[Reject]]:
    """Reads the kept numbers and the rejects."""
    blocks = list(keyed_blocks(*work, **more))
    return [n for block in blocks for n in block.rows["n"].to_pylist()], [r for block in blocks for r in block.rejects]


def test_a_reason_makes_a_reject_and_none_keeps_the_row(tmp_path: Path) -> None:
    kept, rejects = read(planned(tmp_path, SHORT))
    assert kept == [1, 2, 4, 5, 7, 8]
    assert [reject.position for reject in rejects] == [0, 3, 6]
    assert {(reject.reason, reject.message, reject.column) for reject in rejects} == {("filtered", "too short", None)}


MISTAKES = {
    "def keep(row):\n    return row['txt']\n": ["line 2", "KeyError: 'txt'", "'0'"],
    "def keep(row):\n    raise ValueError(row['text'] * 3)\n": ["line 2", "ValueError"],
    "def keep():\n    return None\n": ["TypeError", "keep()"],
    "def keep(row):\n    return True\n": ["None to keep", "bool", "'0'"],
    "def keep(row):\n    return ''\n": ["1 to 100", "0 of them"],
    "def keep(row):\n    return 'a' * 101\n": ["1 to 100", "101 of them"],
    "def keep(row):\n    return 'a\\nb'\n": ["printable", r"'\n' among them"],
    "import sys\ndef keep(row):\n    sys.exit(3)\n": ["line 3", "SystemExit: 3", "'0'"],
    "import sys\nsys.exit(3)\n": ["line 2", "SystemExit: 3"],
    "def other(row):\n    return None\n": ["no function `keep`"],
}


def test_a_reason_may_be_of_an_enum(tmp_path: Path) -> None:
    code = 'import enum\nclass Rule(str, enum.Enum):\n    SHORT = "too short"\ndef keep(row):\n    return Rule.SHORT\n'
    assert {f"{reject.message}" for reject in read(planned(tmp_path, code))[1]} == {"too short"}


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_is_told(code: str, tmp_path: Path) -> None:
    with raises(UserCodeError, f"filter_{tmp_path.name}:keep", *MISTAKES[code]):
        read(planned(tmp_path, code))


def test_reasons_are_names_of_rules(tmp_path: Path) -> None:
    rows = [{"n": number, "text": "a"} for number in range(101)]
    with raises(UserCodeError, "more than 100 reasons", "n = 0.0"):
        read(planned(tmp_path, 'def keep(row):\n    return "n = " + str(row["n"])\n', rows=rows))


def test_later_passes_obey_the_first_one(tmp_path: Path) -> None:
    work, chunk = planned(tmp_path, CALLS)
    work = replace(work, decisions=RowDecisions(filtered=FOLDER))
    (tmp_path / "run").mkdir()
    next(keyed_blocks(work, chunk))  # a pass that ends early leaves no answers
    del sys.modules[f"filter_{tmp_path.name}"].CALLS[:]
    first = read((work, chunk))
    assert len(sys.modules[f"filter_{tmp_path.name}"].CALLS) == len(ROWS)
    assert first == read((work, chunk), images=())
    assert first[0] == [0, 1, 2, 3]
    assert len(sys.modules[f"filter_{tmp_path.name}"].CALLS) == len(ROWS)


IMAGES = "  image: {kind: image, size: 4}\n  other: {kind: image, optional: true, channels: 1, fit: none}\nfilter:"
DARK = """
def keep(row):
    if row["text"] == "unseen":
        return None
    if row["other"] is not None and row["other"].shape != (2, 3, 1):
        return "no grey"
    return "dark" if row["image"].mean() < 9 else None
"""


def test_images_are_decoded_when_they_are_taken(tmp_path: Path) -> None:
    Image.fromarray(np.full((2, 3, 3), 200, np.uint8)).save(tmp_path / "light.png")
    Image.fromarray(np.zeros((2, 3, 3), np.uint8)).save(tmp_path / "dark.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "light.png").read_bytes()[:50])
    rows = [{"text": "a", "image": f"{name}.png"} for name in ("light", "dark", "cut", "lost")]
    rows += [{"text": "a", "image": "light.png", "other": "light.png"}, {"text": "unseen", "image": "cut.png"}]
    rows = [{"n": number, **row} for number, row in enumerate(rows)]
    work, chunk = planned(tmp_path, DARK, SPEC.replace("filter:", IMAGES), rows)
    work = replace(work, decisions=RowDecisions(filtered=FOLDER))
    (tmp_path / "run").mkdir()
    kept, rejects = read((work, chunk), images=())
    assert kept == [0, 4, 5]
    assert [(r.position, r.reason) for r in rejects] == [(1, "filtered"), (2, "undecodable_image"), (3, "unreadable")]
    assert (rejects[2].path, rejects[0].message) == ("lost.png", "dark")
    (missing,) = (tmp_path / "run" / FOLDER).glob("*.jsonl")  # where the next attempt looks whether it has come back
    assert [json.loads(line)["path"] for line in missing.read_text().splitlines()] == ["lost.png"]
    assert read((work, chunk)) == (kept, rejects)


@pytest.mark.parametrize(
    ("code", "error"), [(DARK, OSError), ("def keep(row):\n    open('/no/file')\n", UserCodeError)]
)
def test_a_failing_disk_is_no_mistake_of_the_users(code: str, error: type[Exception], tmp_path: Path) -> None:
    work = planned(tmp_path, code, SPEC.replace("filter:", IMAGES), [{"n": 0, "text": "a", "image": "a.png"}])
    (tmp_path / "run").mkdir()
    failing = patch("recordmill.pipeline.build.images.image_files.ImageFiles.read", side_effect=OSError(5, "I/O error"))
    with failing, pytest.raises((OSError, UserCodeError)) as caught:
        read(work)
    assert type(caught.value) is error


def test_a_row_that_was_lost_when_it_was_to_be_asked_about_stays_out(tmp_path: Path) -> None:
    spec = SPEC.replace("key: n", "key: {content: image}").replace(
        "filter:", "  image: {kind: image, size: 4}\nfilter:"
    )
    work, chunk = planned(tmp_path, SHORT, spec, [{"n": 0, "text": "a", "image": "late.png"}])
    work = replace(work, decisions=RowDecisions(filtered=FOLDER))
    (tmp_path / "run").mkdir()
    assert [reject.reason for reject in read((work, chunk))[1]] == ["unreadable"]
    (missing,) = (tmp_path / "run" / FOLDER).glob("*.jsonl")  # the next attempt finds it, and begins anew
    assert json.loads(missing.read_text())["path"] == "late.png"
    Image.new("RGB", (2, 3)).save(tmp_path / "late.png")
    kept, rejects = read((work, chunk))
    assert (kept, [(reject.reason, reject.path) for reject in rejects]) == ([], [("unreadable", "late.png")])


BUILT = """
name: a
source: {format: jsonl, path: rows.jsonl}
key: n
split_by: {stratify: kind}
features:
  text: {kind: text, vocabulary: 50}
  n: {kind: number}
  kind: {kind: category}
label: kind
duplicates: drop
rejects: {max_share: 0}
"""
WORDS = [{"n": n, "text": f"w{n % 60} w{n % 7}", "kind": "ab"[n % 2] if n % 4 else "c"} for n in range(300)]
WORSE = (
    'def keep(row):\n    if row["n"] % 4 == 0:\n        return "of c"\n    return "late" if row["n"] > 280 else None\n'
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("filtered")
    spec = spec_of(folder, WORSE, BUILT + "filter: FILTER:keep\n", WORDS)
    return folder, build(spec, str(folder / "out")).manifest


@pytest.mark.slow
def test_nothing_is_learned_of_filtered_rows(built: tuple[Path, Manifest], tmp_path: Path) -> None:
    folder, manifest = built
    kept = [row for row in WORDS if row["n"] % 4 and row["n"] <= 280]
    without = build(spec_of(tmp_path, WORSE, BUILT, kept), str(tmp_path / "out")).manifest
    assert manifest.splits == without.splits  # with the shards' SHA-256
    assert (manifest.features, manifest.statistics) == (without.features, without.statistics)
    assert manifest.rows["rejected"] == 90
    assert manifest.rejects["by_reason"] == {"filtered: of c": 75, "filtered: late": 15}


@pytest.mark.slow
def test_filtered_rows_are_listed_forecast_and_forgotten(built: tuple[Path, Manifest]) -> None:
    folder, manifest = built
    found = forecast(load_spec(str(folder / "dataset.yaml")), LocalFiles())
    assert isinstance(found, Forecast)
    assert (found.rejects, found.exit_code) == (manifest.rejects["by_reason"], 0)
    version = folder / "out/versions" / manifest.version
    facts = {reason: (rows, len(examples)) for reason, rows, examples in VersionFacts(version, manifest).rejects(99)}
    assert facts == {"filtered: of c": (75, 75), "filtered: late": (15, 15)}
    contents = read_contents(open_dataset(folder / "out"))
    assert [text for text, section in remarks(contents) if section == "rejects"] == []
    mixed = replace(manifest, rejects={"by_reason": {"filtered: late": 15, "wrong_type": 2}})
    (text,) = [text for text, to in remarks(replace(contents, facts=VersionFacts(version, mixed))) if to == "rejects"]
    assert text.startswith("2 of ")
    (line,) = [
        line for line in map(json.loads, (version / manifest.rejects["files"][0]["file"]).open()) if line["id"] == "4"
    ]
    assert_names(line, "'code': 'filtered'", "'message': 'of c'", "'line': 5")
    forget(str(folder / "out"), [b"4"])
    live = json.loads((folder / "out/LATEST").read_text())["version"]
    reasons = json.loads((folder / "out/versions" / live / "dataset.json").read_text())["rejects"]["by_reason"]
    assert reasons == {"filtered: of c": 74, "filtered: late": 15}


def test_its_code_is_in_the_key(tmp_path: Path) -> None:
    spec, keys = spec_of(tmp_path, SHORT), list[str]()
    for code in (SHORT, CALLS, SHORT):
        (tmp_path / f"filter_{tmp_path.name}.py").write_text(code)
        keys.append(listing_key(spec, LocalFiles()))
    assert keys[0] == keys[2] != keys[1]


class English:
    """Splits texts about as spaCy's `blank("en")` does, which the tests' environment lacks."""

    def add_pipe(self, name: str) -> None:
        assert name == "sentencizer"

    def memory_zone(self) -> nullcontext[None]:
        return nullcontext()

    def make_doc(self, text: str) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=word) for word in re.findall(r"\w+|\.\.\.|[^\w\s]", text)]

    def __call__(self, text: str) -> SimpleNamespace:
        return SimpleNamespace(sents=re.split(r"(?<=[.!?])\s+", text))


GOOD = "The cats of that house have to be with the dogs, and the house stands alone near a river.\n"
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
BLURRED = np.asarray(Image.fromarray(NOISE[:4, :4]).resize((64, 64), Image.Resampling.BICUBIC))
EXAMPLES: list[tuple[str, Any, str | None]] = [
    ("gopher", GOOD * 4, None),
    ("gopher", GOOD, "fewer than 50 words"),
    ("gopher", "a b " * 50, "words shorter than 3 letters in the mean"),
    ("gopher", "abcdefghijkl " * 50, "words longer than 10 letters in the mean"),
    ("gopher", GOOD * 4 + "# " * 20, "more than 0.1 hashes a word"),
    ("gopher", GOOD * 4 + "... " * 20, "more than 0.1 ellipses a word"),
    ("gopher", ("- " + GOOD) * 4, "more than 90 % of the lines are bullets"),
    ("gopher", GOOD * 4 + (GOOD.strip(".\n") + "...\n") * 4, "more than 30 % of the lines end in an ellipsis"),
    ("gopher", GOOD * 4 + "1234 " * 40, "fewer than 80 % of the words have a letter"),
    ("gopher", "every cat sat here " * 20, "fewer than 2 stop words"),
    ("c4", GOOD * 5, None),
    ("c4", GOOD * 4, "fewer than 5 sentences"),
    ("c4", GOOD * 4 + "No end of it\nToo short.\nSee our cookie policy there.\n", "fewer than 5 sentences"),
    ("c4", GOOD * 5 + "Here is Lorem ipsum again.\n", "lorem ipsum"),
    ("c4", GOOD * 5 + "Here is {a} thing.\n", "a curly bracket"),
    ("fineweb", "".join(f"{number} {GOOD}" for number in range(4)), None),
    ("fineweb", " \n", "empty"),
    ("fineweb", "A long line without any end of it\n" * 9, "fewer than 12 % of the lines end a sentence"),
    ("fineweb", "".join(f"Line {number}.\n" for number in range(9)), "more than 67 % of the lines are short"),
    ("fineweb", GOOD * 2, "more than 1 % of the letters are in repeated lines"),
    ("fineweb", GOOD + "\n" * 9, "more than 0.3 line breaks a word"),
    ("pictures", NOISE, None),
    ("pictures", None, None),
    ("pictures", NOISE // 20, "dark"),
    ("pictures", np.full_like(NOISE, 90), "flat"),
    ("pictures", BLURRED, "blurred"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "reason"), EXAMPLES, ids=[f"{name}-{reason}" for name, _, reason in EXAMPLES]
)
def test_the_examples_decide_as_their_rules_say(
    name: str, value: Any, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples/filters"))
    spacy = SimpleNamespace(blank=lambda language: English())
    with patch.dict(sys.modules, spacy=spacy):  # which forgets their module `words` at its end
        keep = runpy.run_path(str(Path(__file__).parents[1] / f"examples/filters/{name}.py"))["keep"]
        assert keep({"text": value, "image": value}) == reason
