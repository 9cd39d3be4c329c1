"""The probe of the label: changes that no distribution shows, and changes that are none."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from recordmill import GateBreachedError, build, load_spec
from recordmill.pipeline.compare.comparison import compare
from recordmill.pipeline.compare.probe import probe_figures
from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.dataset.manifest import Manifest, Split
from recordmill.pipeline.errors import DatasetError
from tests import hand_made

FEATURES = {name: hand_made.FEATURES[name] for name in ("text", "category", "price", "image")}
Rows = list[dict[str, Any]]


def rows_of(seed: int, count: int = 500) -> Rows:
    """Rows whose words, price and brightness say something of their category."""
    random = np.random.default_rng(seed)
    rows: Rows = []
    for number in range(count):
        category = int(random.random() < 0.3)
        likely, pixels = int(category != (random.random() < 0.15)), random.integers(0, 90, (6, 8, 3)) + 60 * category
        words, price = [2 + 2 * likely + int(random.integers(2))], float(random.normal(10 + 3 * category, 4))
        row = {"key": b"%d/%d" % (seed, number), "text": words, "category": category, "price": price}
        rows.append(row | {"image": hand_made.encoded(pixels.astype(np.uint8), "png")})
    return rows


def version(folder: Path, rows: Rows) -> ComparedVersion:
    """A version of some rows, in one shard."""
    folder.mkdir()
    for name, words in hand_made.VOCABULARIES.items():
        (folder / hand_made.assets(name)).parent.mkdir(parents=True, exist_ok=True)
        (folder / hand_made.assets(name)).write_text("".join(f"{word}\n" for word in words))
    shard = hand_made.write_records(folder, "hand-train.tfrecord", "hand-train.index", map(example, rows))
    return ComparedVersion(Manifest("d", "v", "k", "category", FEATURES, {"train": Split((shard,))}, {}, {}), folder)


def example(row: dict[str, Any]) -> bytes:
    features = tf.train.Features(feature={name: hand_made.feature_of(value) for name, value in row.items()})
    return tf.train.Example(features=features).SerializeToString(deterministic=True)


def moved(rows: Rows, *names: str) -> Rows:
    """Replaces some values of each row by those of another row."""
    others = np.random.default_rng(5).permutation(len(rows))
    return [row | {name: rows[other][name] for name in names} for row, other in zip(rows, others, strict=True)]


CASES: dict[str, tuple[Callable[[Rows], Rows], bool]] = {
    "the same rows": (lambda rows: rows, False),
    "a tenth more": (lambda rows: [*rows, *rows_of(8, 50)], False),
    "all others": (lambda rows: rows_of(9), False),
    "fewer cats": (lambda rows: [row for row in rows if row["category"] or row["key"][-1] % 2], False),
    "shuffled labels": (lambda rows: moved(rows, "category"), True),
    "swapped labels": (lambda rows: [row | {"category": 1 - row["category"]} for row in rows], True),
    "features of other rows": (lambda rows: moved(rows, "text", "price", "image"), True),
}


@pytest.mark.parametrize("case", CASES)
def test_changes_that_only_the_label_shows(case: str, tmp_path: Path) -> None:
    change, is_breach = CASES[case]
    rows = rows_of(7)
    live, after = version(tmp_path / "live", rows), version(tmp_path / "after", change(rows))
    (figure,) = probe_figures(live, after)
    assert (figure.subject, figure.counted > 100) == ("category (train)", True)
    assert (figure.value > 0.05) == is_breach, str(figure)
    assert [*probe_figures(live, after)] == [figure]


def test_what_cannot_be_probed_is_said(tmp_path: Path) -> None:
    live = version(tmp_path / "live", rows_of(7, 60))
    numbers = replace(live, manifest=replace(live.manifest, label="price"))
    assert [*probe_figures(numbers, numbers)] == []
    (tmp_path / "live/hand-train.tfrecord").write_bytes(b"")
    with pytest.raises(DatasetError, match="hand-train.tfrecord"):
        [*probe_figures(live, live)]
    compared = compare(live, live, is_probed=True)
    assert "hand-train.tfrecord" in compared.not_compared[-1]
    assert compared.not_compared[-1].startswith("the label by its probe: ")


@pytest.mark.slow
@pytest.mark.nightly
def test_shuffled_labels_hold_a_build_back(tmp_path: Path) -> None:
    (tmp_path / "dataset.yaml").write_text(
        f"name: d\nsource: {{format: jsonl, path: {tmp_path}/rows.jsonl}}\n"
        "key: id\nlabel: label\nsplits: {train: 1}\ngate: {probe: 0.05}\n"
        "features: {text: {kind: text}, label: {kind: category}}\n"
    )
    spec, labels = load_spec(str(tmp_path / "dataset.yaml")), np.arange(600) % 2
    for truth, held in ((labels, False), (np.random.default_rng(1).permutation(labels), True)):
        rows = [
            {"id": f"{row}", "text": f"{'cd'[row % 2]}{row % 7} x{row % 11}", "label": str(label)}
            for row, label in enumerate(truth.tolist())
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        if not held:
            assert build(spec, str(tmp_path / "out")).went_live
    with pytest.raises(GateBreachedError, match=r"probe of label \(train\) is 0\.\d+, more than 0.05: found 100.0% → "):
        build(spec, str(tmp_path / "out"))
