"""`recordmill plan`: forecasts and warnings. No shard is written here."""

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from PIL import Image

from recordmill.pipeline.build.run_options import RunOptions
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import read_manifest
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.forecast import sample
from recordmill.pipeline.forecast.forecast import Forecast, duration, forecast, lines_of
from recordmill.pipeline.sources.files import LocalFiles
from recordmill.pipeline.spec.model import load_spec
from tests import published
from tests.chats import TEMPLATES, TOKENS, chats, mask_of, tokenizer, trained_spans, write_model
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.profiles import P3
from tests.tables import write_jsonl

SPEC = """
name: people
source: {format: csv, path: data.csv}
key: id
features:
  age: {kind: number, optional: true, indicator: true}
  city: {kind: category}
  label: {kind: category}
label: label
"""
NUMBERS = re.compile(r"\d[\d,.]*%?")


def write(folder: Path, lines: Sequence[str], spec: str = SPEC) -> Path:
    (folder / "data.csv").write_text("\n".join(["id,age,city,label", *lines]) + "\n")
    (folder / "dataset.yaml").write_text(spec)
    return folder / "dataset.yaml"


def rows(count: int, line: Callable[[int], str]) -> list[str]:
    return [line(number) for number in range(count)]


def forecast_of(spec: Path, output: str | None = None, options: RunOptions = RunOptions()) -> Forecast:  # noqa: B008
    result = forecast(load_spec(str(spec)), LocalFiles(), output, options)
    assert isinstance(result, Forecast)
    return result


def mixed(folder: Path) -> Path:
    """Writes rows: two are bad, and a quarter lacks an age."""
    lines = rows(
        400, lambda n: f"{n},{'' if n % 4 == 0 else n},{'bern' if n % 3 else 'oslo'},{'cat' if n % 2 else 'dog'}"
    )
    return write(folder, [*lines, "400,old,bern,cat", "401,7,,cat"])


def test_several_workers_need_memory_for_a_driver_beside_them(tmp_path: Path) -> None:
    one, two = (forecast_of(mixed(tmp_path), None, RunOptions(processes=each)).memory_bytes for each in (1, 2))
    assert two == 3 * one


def test_the_page_of_the_docs_is_what_is_printed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs/plan.md").read_text(encoding="utf-8")
    block = page.split("$ recordmill plan dataset.yaml\n")[1].split("```")[0].splitlines()
    printed = list(lines_of(forecast_of(mixed(tmp_path))))
    end = next(number for number, line in enumerate(block) if line.startswith("disk:"))  # what follows is the machine's
    for ours, theirs in zip(printed, block, strict=True):
        assert ours.partition(":")[0].split()[:1] == theirs.partition(":")[0].split()[:1]
    assert [NUMBERS.findall(line) for line in printed[:end]] == [NUMBERS.findall(line) for line in block[:end]]


@pytest.mark.parametrize(
    ("line", "count", "spec", "facts", "code"),
    [
        (lambda n: f"{n},1,bern,{'cat' if n else 'dog'}", 200, SPEC, ["99.5%", "one class", "'cat'"], 0),
        (lambda n: f"{n},1,bern,cat", 200, SPEC, ["'label'", "one class", "'cat'"], 0),
        (lambda n: f"{n},,bern,{'cat' if n % 2 else 'dog'}", 200, SPEC, ["'age'", "missing", "all rows"], 0),
        (lambda n: f"{n % 199},1,bern,{n % 2}", 200, SPEC, ["1 key of several rows", "'0' in 2"], 0),
        (lambda n: f"{n % 100},1,bern,{n % 2}", 200, SPEC, ["50.0%", "repeat a key", "max_duplicate_share: "], 5),
        (lambda n: f"{n},x,bern,{n % 2}", 200, SPEC, ["every row", "rejected"], 5),
        (lambda n: f"{n},x,bern,{n % 2}", 200, SPEC, ["100.0%", "data.csv, line 2, column 'age'", "a number"], 5),
        (lambda n: f"{n},x,bern,{n % 2}", 200, SPEC + "rejects: {max_share: null}\n", ["every row", "rejected"], 1),
        (lambda n: f"{n},{'x' if n % 9 == 0 else 1},bern,{n % 2}", 200, SPEC, ["11.5%", "rejected", "max_share: "], 5),
        (lambda n: f"{n},1,bern,{n % 2}", 20, SPEC + "splits: {train: 99.9, test: 0.1}\n", ["'test'", "empty"], 0),
        (lambda n: f"{n},1,bern,{n % 2}", 20, SPEC + "splits: {train: 0.1, test: 99.9}\n", ["no row", "'train'"], 1),
    ],
)
def test_a_person_is_warned(
    tmp_path: Path, line: Callable[[int], str], count: int, spec: str, facts: list[str], code: int
) -> None:
    result = forecast_of(write(tmp_path, rows(count, line), spec))
    assert warned(result.warnings, *facts), result.warnings
    assert result.exit_code == code


def warned(warnings: Sequence[str], *facts: str) -> bool:
    """Whether one warning holds all facts."""
    return any(all(fact in warning for fact in facts) for warning in warnings)


SHOWN = ["Night", "Day"]


@pytest.mark.parametrize(
    ("classes", "shown", "facts"),
    [
        ("[bright, dark]", None, ["2 names", "other ids", published.VERSION]),
        ("[dark]", None, ["1 names", "no id (bright)", published.VERSION]),
        ("fresh", None, ["`classes: fresh`", "other ids", published.VERSION]),
        ("{dark: Night, bright: Day}", SHOWN, []),
        ("{bright: Day, dark: Night}", SHOWN, ["2 names", "other ids"]),
    ],
)
def test_ids_that_move_against_the_live_version_are_named(
    tmp_path: Path, classes: str, shown: list[str] | None, facts: list[str]
) -> None:
    label = published.FEATURES["label"] | ({"shown": shown} if shown else {})
    published.write_version(tmp_path / "out", features={**published.FEATURES, "label": label})
    spec = SPEC.replace("name: people", "name: small")
    spec = spec.replace("label: {kind: category}", f"label: {{kind: category, classes: {classes}}}")
    file = write(tmp_path, rows(60, lambda n: f"{n},{n},bern,dark"), spec)
    warnings = [each for each in forecast_of(file, str(tmp_path / "out")).warnings if each.startswith("'label'")]
    assert warned(warnings, *facts) if facts else not warnings, warnings


def test_images_are_opened_and_bad_ones_counted(tmp_path: Path) -> None:
    for number in range(12):
        folder = tmp_path / "images" / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((20 + number, 30, 3), number * 20, np.uint8)
        profile = P3 if number < 3 else None
        Image.fromarray(pixels).save(folder / f"{number}.{'png' if number % 3 else 'jpg'}", icc_profile=profile)
    (tmp_path / "images/cat/broken.jpg").write_bytes(b"no image")
    (tmp_path / "images/notes.pdf").write_bytes(b"%PDF")
    (tmp_path / "dataset.yaml").write_text(
        "name: pets\nsource: {format: image_folder, path: images}\n"
        "features:\n  image: {kind: image, size: 16}\n  label: {kind: category}\nlabel: label\n"
    )
    result = forecast_of(tmp_path / "dataset.yaml")
    assert (result.rows, result.rows_are_exact, result.sample_is_all) == (13, True, True)
    assert result.rejects == {"unsupported_format": 1}
    assert any("notes.pdf" in note for note in result.notes)
    assert result.columns[0].facts[:2] == ("8 PNG, 4 JPEG", "30x20 to 30x31 pixels")
    assert result.columns[0].facts[-1] == "3 Display P3 converted to sRGB"
    assert_names("\n".join(lines_of(result)), "1 of 13 rows", "1 unsupported_format")


def test_a_large_source_is_sampled(tmp_path: Path) -> None:
    spec = write(tmp_path, rows(20_000, lambda n: f"{n},{n},bern,{'cat' if n % 2 else 'dog'}"))
    with constants(sample, ALL_BYTES=1 << 10):
        result = forecast(load_spec(str(spec)), LocalFiles(), options=RunOptions(chunk_bytes=2 << 10))
        assert isinstance(result, Forecast)
        assert not result.sample_is_all
        assert 1_000 < result.sampled_rows < 10_000
        assert sum(split.rows for split in result.splits.values()) == pytest.approx(result.rows, rel=0.01)
        assert_names("\n".join(lines_of(result)), f"a sample of {result.sampled_rows:,}")


@pytest.mark.parametrize(("other", "doubled"), [("test", False), ("train", True)])
def test_a_key_may_stand_in_two_splits(tmp_path: Path, other: str, doubled: bool) -> None:
    spec = SPEC + "split_by: {column: city}\nsplits: {train: 50, test: 50}\n"
    lines = rows(100, lambda n: f"{n // 2},1,{other if n % 2 else 'train'},{n % 4 // 2}")
    warnings = forecast_of(write(tmp_path, lines, spec)).warnings
    assert any("50 keys of several rows" in each for each in warnings) == doubled, warnings


BUILT = {
    "end": "published",
    "build_key": "a",
    "ended_at": "then",
    "rows": {"read": 100},
    "seconds": 50.0,
    "stages": {"plan": 1.0, "look": 9.0, "write": 30.0},
    "runner": "local",
    "host": os.uname().nodename,
}
AGAIN = {**BUILT, "seconds": 0.2, "stages": {"plan": 0.2}}
KILLED = {**BUILT, "end": "killed", "rows": {}, "seconds": None}
LATER = {**BUILT, "seconds": 10.0}


@pytest.mark.parametrize(
    ("history", "seconds"),
    [
        ([BUILT], 200.0),
        ([BUILT, LATER], 40.0),
        ([BUILT, AGAIN], 200.0),  # made live again
        ([{**KILLED, "build_key": "b"}, BUILT], 200.0),
        ([{**BUILT, "build_key": "b"}, KILLED, LATER], 200.0),  # which went on
        ([KILLED, {**BUILT, "end": "dry_run"}, LATER], None),
        ([KILLED, LATER, BUILT], 200.0),  # all rows once more
        ([{**BUILT, "runner": "flink"}], None),
        ([{}], None),
    ],
)
def test_the_time_is_that_of_a_build_of_all_rows(
    tmp_path: Path, history: list[dict[str, Any]], seconds: float | None
) -> None:
    published.write_version(tmp_path / "out")
    write_jsonl(tmp_path / "out/history.jsonl", history)
    spec = SPEC.replace("name: people", "name: small")
    result = forecast_of(write(tmp_path, rows(400, lambda n: f"{n},1,bern,{n % 2}"), spec), str(tmp_path / "out"))
    assert (None if result.time is None else result.time.seconds) == seconds
    (line,) = (line for line in lines_of(result) if line.startswith("time: "))
    assert_names(line, *([duration(seconds), "then"] if seconds else ["unknown", "`recordmill build --limit 1000`"]))


def texts(folder: Path, count: int, length: int) -> Path:
    """Writes rows of random text, in one piece."""
    pq.write_table(pa.table({"text": [os.urandom(length // 2).hex() for _ in range(count)]}), folder / "a.parquet")
    (folder / "dataset.yaml").write_text(
        "name: d\nsource: {format: parquet, path: a.parquet}\nfeatures: {text: {kind: text}}\n"
    )
    return folder / "dataset.yaml"


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("count", "length", "most"),
    [(20_000, 1_000, {"ALL_BYTES": 1 << 20}), (200, 100_000, {"ALL_BYTES": 1 << 20}),
     (20_000, 1_000, {"HELD_BYTES": 4 << 20})],
)  # fmt: skip
def test_a_large_source_of_one_piece_is_neither_read_nor_held_whole(
    tmp_path: Path, count: int, length: int, most: dict[str, int]
) -> None:
    with constants(sample, **most):
        result = forecast_of(texts(tmp_path, count, length))
    assert not result.sample_is_all
    assert 0 < result.sampled_rows * length <= 9 << 20  # a block of the source has 8 MiB
    assert result.splits["train"].rows == pytest.approx(0.8 * count, rel=0.2)


def test_json_says_that_nothing_has_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(published.write_version(tmp_path / "out", rows=2))
    monkeypatch.setattr("recordmill.pipeline.forecast.forecast.forecast", lambda *_: manifest)
    write_jsonl(tmp_path / "rows.jsonl", [{"price": 1}])
    spec = tmp_path / "dataset.yaml"
    spec.write_text("name: d\nsource: {format: jsonl, path: rows.jsonl}\nfeatures: {price: {kind: number}}\n")
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit, match="0"):
            main(["plan", str(spec), *more])
        printed = capsys.readouterr().out
        assert published.VERSION in printed
    assert json.loads(printed) == {"unchanged_since": published.VERSION, "notes": []}


def test_the_command_prints_lines_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = write(tmp_path, rows(50, lambda n: f"{n},1,bern,{n % 2}"))
    printed: list[Any] = []
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit) as end:
            main(["plan", str(spec), *more])
        assert end.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0].startswith("people: ")
    as_json = json.loads(printed[1])
    assert as_json["splits"].keys() == {"train", "validation", "test"}
    assert as_json["splits"]["train"].keys() == {"rows", "shards"}
    assert as_json["time"] is None


@pytest.mark.parametrize("most", [None, 100])
def test_a_plan_tells_roles_trained_tokens_lengths_and_packs(most: int | None, tmp_path: Path) -> None:
    model, given = write_model(tmp_path / "model"), chats("qwen2", 40)
    write_jsonl(tmp_path / "chats.jsonl", [{"chat": each} for each in [*given, [{"role": "owl", "content": "hu"}]]])
    (tmp_path / "dataset.yaml").write_text(
        "name: d\nsource: {format: jsonl, path: chats.jsonl}\n"
        f"features: {{chat: {{kind: chat, model: {model}, max_length: {json.dumps(most)}}}}}\n"
        "pack: [{features: [chat], length: 512}]\n"
    )
    whole, kept, trained, roles = list[int](), list[int](), 0, Counter[str]()
    for messages in given:
        text = ImmutableSandboxedEnvironment().from_string(TEMPLATES["qwen2"]).render(messages=messages, **TOKENS)
        encoded = tokenizer().encode(text, add_special_tokens=False)
        if mask := [*filter(any, [mask_of(encoded.offsets, trained_spans("qwen2", messages, text))[:most]])]:
            whole, kept, trained = [*whole, len(encoded.ids)], [*kept, len(mask[0])], trained + sum(mask[0])
            roles.update(message["role"] for message in messages)
    result = forecast_of(tmp_path / "dataset.yaml")
    facts, tokens = [f"{number:,} {role}" for role, number in roles.items()], sum(kept)
    is_cut = np.array(whole) > np.array(kept)
    facts += [f"{is_cut.sum()} chats cut, {sum(whole):,} tokens before"] if most else []
    assert_names(result.columns[0].facts[-1], *facts, f"{trained / tokens:.1%} of {tokens:,} tokens")
    assert 5 < is_cut.sum() < len(whole) if most else len(whole) == 40
    assert (result.rejects["malformed_chat"], result.rejects.get("no_trainable_token", 0)) == (1, 40 - len(whole))
    (packed,) = result.packs
    assert (packed.length, round(packed.rows * packed.filled * 512)) == (512, tokens)


def test_a_function_that_fails_for_rows_is_told(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import tensorflow as tf\n\ndef own(inputs, outputs):\n"
        "    return outputs | {'age': tf.strings.to_number(tf.strings.as_string(inputs['age']) + 'x')}\n"
    )
    spec = write(tmp_path, rows(9, lambda n: f"{n},{n},bern,{n % 2}"), SPEC + "preprocessing: mine:own\n")
    with raises(UserError, "mine:own", "InvalidArgumentError"):
        forecast_of(spec)


def test_a_function_with_a_learned_vocabulary_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "mine_too.py").write_text(
        "import tensorflow_transform as tft\n\ndef own(inputs, outputs):\n"
        "    return outputs | {'ids': tft.compute_and_apply_vocabulary(inputs['city'])}\n"
    )
    spec = write(tmp_path, rows(9, lambda n: f"{n},{n},bern,{n % 2}"), SPEC + "preprocessing: mine_too:own\n")
    assert_names(" ".join(forecast_of(spec).notes), "mine_too:own", "not run", "analyzers")
