"""The options of inputs: each is in the docs with its default, and refused by the other method."""

import json
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill import Dataset, ReadOptions
from recordmill.pipeline.reader.options import THE_LABEL
from tests import hand_made
from tests.messages import raises
from tests.test_import_tiers import python

PAGE = Path(__file__).parents[1] / "docs/reading.md"
OPTIONS = {each.name: each for each in fields(ReadOptions) if each.init}


def written(option: Field[Any]) -> str:
    """An option's default as the docs write it."""
    if option.default is MISSING:
        return "required"
    if option.default == THE_LABEL:
        return "the dataset's"
    return f"`{json.dumps(option.default)}`" if isinstance(option.default, str) else f"`{option.default!r}`"


def test_the_docs_list_every_option_with_its_default_and_its_method() -> None:
    row = re.compile(r"^\| `(\w+)` \| ([^|]*) \| (both|training|evaluation) \| .+ \|$", re.MULTILINE)
    rows = row.findall(PAGE.read_text(encoding="utf-8"))
    expected = [(name, written(each), each.metadata.get("only", "both")) for name, each in OPTIONS.items()]
    assert sorted(rows) == sorted(expected)


@pytest.mark.parametrize(("method", "options", "facts"), [
    ("training_input", {"batch_sise": 1}, ("'batch_sise'", "`batch_size`")),
    ("training_input", {"pad": True}, ("'pad'",)),
    ("training_input", {}, ("batch_size",)),
    ("evaluation_input", {"batch_size": 1, "dtyp": 1}, ("'dtyp'", "`dtype`")),
    ("evaluation_input", {"batch_size": 1, "seed": 1}, ("'seed'",)),
    ("evaluation_input", {}, ("batch_size",)),
])  # fmt: skip
def test_an_option_of_another_name_is_refused(
    method: str, options: dict[str, Any], facts: tuple[str, ...], dataset: Dataset
) -> None:
    with raises(TypeError, method, *facts):
        getattr(dataset, method)("train", **options)
    with raises(TypeError, "split"):
        dataset.evaluation_input(batch_size=2)


def test_options_are_an_input_as_keywords_are(dataset: Dataset) -> None:
    options = ReadOptions("train[:6]", batch_size=3, seed=5, features=["price"])
    mine, other = dataset.input(options), dataset.training_input("train[:6]", batch_size=3, seed=5, features=["price"])
    assert mine.source.order_facts() == other.source.order_facts()
    for (left, _), (right, _) in zip(mine.as_numpy(), other.as_numpy(), strict=True):
        np.testing.assert_array_equal(left["price"], right["price"])
    assert options == ReadOptions("train[:6]", batch_size=3, seed=5, features=["price"])


LOADED = """
import json, sys
from recordmill import open_dataset

def loaded():
    return [name for name in sys.modules if name.partition(".")[0] == "recordmill"]

dataset = open_dataset(sys.argv[1])
opened = loaded()
batches = sum(1 for _ in dataset.training_input(batch_size=2))
print(json.dumps([opened, loaded(), batches]))
"""
OTHER_ROOMS = tuple(f"recordmill.pipeline.{room}" for room in ("sources", "spec", "build", "init", "verify", "cli"))


def test_a_dataset_opens_with_few_modules_and_reads_with_none_of_other_rooms(tmp_path: Path) -> None:
    hand_made.write_dataset(tmp_path)
    done = python(LOADED, str(tmp_path))
    assert done.returncode == 0, done.stderr
    opened, read, batches = json.loads(done.stdout)
    assert batches == 5
    assert len(opened) <= 31, opened
    assert [name for name in (*opened, *read) if name.startswith(OTHER_ROOMS)] == []
