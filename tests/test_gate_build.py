"""A real build breaches every rule of the gate, and waits; the command shows it."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recordmill import GateBreachedError, build, load_spec
from recordmill.pipeline.cli.session import change_lines
from recordmill.pipeline.dataset.manifest import read_latest
from recordmill.pipeline.errors import ExitCode
from recordmill.pipeline.spec.gate import Gate
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.acts import approve, rollback
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from tests.messages import assert_names, raises

pytestmark = pytest.mark.slow
SPEC = """
name: people
source: {format: jsonl, path: rows.jsonl}
key: id
splits: {train: 9, test: 1}
label: label
rejects: {max_share: 1}
preprocessing: own_OWN:fn
filter: rare:keep
gate: {min_rows: 50, min_values: 50, jensen_shannon: 0.05, rows_gained: 0.5, features: {text: {ids_moved: 0.01}}}
features:
  image: {kind: image, size: [4, 4], normalize: dataset}
  age: {kind: number, optional: true}
  text: {kind: text}
  city: {kind: category, minimum_count: 5}
  label: {kind: category}
"""
OWN = """
import tensorflow as tf

def fn(inputs, outputs):
    return outputs | {"old": tf.cast(inputs["age"] > 40, TYPE)}
"""
KEEP = """
def keep(row):
    return "a word" if row["text"].split()[0] in ("word3", "word7", "word9") else None
"""


def write(folder: Path, rows: int, *, bad: bool = False) -> None:
    """Writes rows; bad ones differ in all the gate compares."""
    random, lines = np.random.default_rng(1), []
    for row in range(rows):
        Image.new("RGB", (4, 4), (row % 50 + (100 if bad else 0), 9, 9)).save(folder / f"{row % 50}{'b' * bad}.png")
        words = [f"word{row % 20}"] if bad else [f"word{row}"]
        words += ["long"] * (7 if bad else int(random.integers(1, 5)))
        line = {
            "id": f"row{row}",
            "image": f"{row % 50}{'b' * bad}.png" if not (bad and row % 10 == 0) else "0b.png",
            "text": " ".join(words),
            "city": f"town{row}" if bad and row % 2 else ["rome", "oslo"][row % 2],
            "label": "cat" if bad and row % 8 else ["cat", "dog"][row % 2],
        }
        if not (bad and row % 3 == 0):
            line["age"] = round(float(random.normal(40, 10)) + 40 * bad, 1)
        if bad and row % 20 == 1:
            line["age"] = "old"  # a reject
        lines.append(json.dumps(line))
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")


def spec_of(folder: Path, own: str = "one", gate: str = "") -> str:
    (folder / "rare.py").write_text(KEEP)
    (folder / "own_one.py").write_text(OWN.replace("TYPE", "tf.int64"))
    (folder / "own_two.py").write_text(OWN.replace("TYPE", "tf.float32"))
    lines = [gate if gate and line.startswith("gate:") else line for line in SPEC.splitlines()]
    (folder / "dataset.yaml").write_text("\n".join(lines).replace("OWN", own))
    return str(folder / "dataset.yaml")


@pytest.mark.nightly
def test_every_rule_holds_a_build_back(tmp_path: Path) -> None:
    output = str(tmp_path / "out")
    write(tmp_path, 300)
    first = build(load_spec(spec_of(tmp_path)), output)
    assert (first.manifest.gate, first.before, first.breaches) == ({}, None, ())
    assert [*change_lines(output, first)] == []

    write(tmp_path, 200, bad=True)
    spec = load_spec(spec_of(tmp_path, "two"))
    with raises(GateBreachedError, first.manifest.version, "rows_lost of all") as held_back:
        build(spec, output)
    waiting = held_back.value.published
    rules = set(Gate.model_fields) - {"rows_short", "min_rows", "min_values", "features", "rows_gained", "filtered"}
    assert {check["rule"] for check in waiting.manifest.gate["breaches"]} == rules
    assert any("`filter`" in line for line in waiting.manifest.gate["not_compared"])  # the user's code was edited
    assert (waiting.exit_code, waiting.went_live, waiting.before) == (ExitCode.GATE, False, first.manifest.version)
    assert read_latest(output).version == first.manifest.version
    lines = [*change_lines(output, waiting)]
    assert_names(lines[0], first.manifest.version)
    assert_names("\n".join(lines), "rows: 0 added")

    with raises(GateBreachedError, waiting.manifest.version, "built before") as again:
        build(spec, output)
    assert (again.value.published.manifest.version, again.value.published.is_new) == (waiting.manifest.version, False)
    assert json.loads((tmp_path / "out/history.jsonl").read_text().splitlines()[-1])["exit_code"] == ExitCode.GATE

    assert approve(output)[0].version == waiting.manifest.version
    assert not build(spec, output).went_live  # it is live: nothing has changed
    write(tmp_path, 320)
    with raises(GateBreachedError, "rows_gained of all"):
        build(load_spec(spec_of(tmp_path, "two")), output)
    open_gate = build(load_spec(spec_of(tmp_path, "two", "gate: false")), output)  # the limits are in no build key
    assert (open_gate.is_new, open_gate.went_live, open_gate.breaches) == (False, True, ())


def test_a_bad_day_among_good_ones_is_held_back(tmp_path: Path) -> None:
    """As a whole, the version is nearly the live one."""
    spec, output = tmp_path / "dataset.yaml", str(tmp_path / "out")
    spec.write_text(
        f"name: days\nsource: {{format: jsonl, path: '{tmp_path}/data/{{span}}/rows.jsonl'}}\nkey: id\nlabel: label\n"
        "gate: {min_rows: 50, min_values: 50}\nsplits: {train: 1}\n"
        "features: {age: {kind: number, optional: true}, label: {kind: category}}\n"
    )

    def write_day(day: int, *, bad: bool = False) -> None:
        (folder := tmp_path / f"data/day-{day:02}").mkdir(parents=True, exist_ok=True)
        with (folder / "rows.jsonl").open("w") as file:
            for row in range(100 + day):
                age = {} if bad and row % 10 == 0 else {"age": row % 50}
                label = "cat" if bad else ["cat", "dog"][row % 2]
                file.write(json.dumps({"id": f"{day}/{row}", "label": label} | age) + "\n")

    for day in range(20):
        write_day(day)
    build(load_spec(str(spec)), output)
    write_day(20, bad=True)
    with pytest.raises(GateBreachedError) as held_back:
        build(load_spec(str(spec)), output)
    breaches = held_back.value.published.manifest.gate["breaches"]
    assert [(breach["rule"], breach["subject"]) for breach in breaches] == [
        ("missing", "age (train, day-20)"),
        ("names_lost", "label (day-20)"),
        ("l_infinity", "label (train, day-20)"),
    ]
    with raises(GateBreachedError, "day-20"):  # the waiting version is judged again
        build(load_spec(str(spec)), output)
    shutil.rmtree(tmp_path / "data/day-20")
    assert build(load_spec(str(spec)), output).exit_code == ExitCode.UP_TO_DATE
    with raises(OutputError, output, "held back"):
        approve(output)
    write_day(20)
    assert build(load_spec(str(spec)), output).went_live


@pytest.mark.nightly
def test_a_version_that_is_judged_again_is_named(tmp_path: Path) -> None:
    """One that was live before by `rollback`, since only one that never was can be approved."""
    output, rows, gate = str(tmp_path / "out"), tmp_path / "rows.jsonl", "gate: {min_rows: 1, rows_lost: 0.1}\n"
    text = f"name: d\nsource: {{format: jsonl, path: {rows}}}\nsplits: {{train: 1}}\nfeatures: {{t: {{kind: text}}}}\n"

    def built(count: int, gate: str) -> Published:
        rows.write_text("".join(f'{{"t": "text {row}"}}\n' for row in range(count)))
        os.utime(rows, (count, count))
        return build(parse_spec(text + gate), output)

    few = built(10, "gate: false\n").manifest.version
    many = built(20, "gate: false\n").manifest.version
    with raises(GateBreachedError, f"`recordmill versions rollback {output} {few}`"):
        built(10, gate)
    assert rollback(output, few)[1] == many
    rollback(output, many)
    with raises(GateBreachedError, f"`recordmill versions approve {output}`") as held_back:
        built(15, gate)
    waiting = held_back.value.published.manifest.version
    with raises(GateBreachedError, f"`recordmill versions approve {output} {waiting}`"):
        built(15, gate)
    assert approve(output, waiting)[1] == many
