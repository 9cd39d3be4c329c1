"""Ids of learned classes across versions: known names keep them, new ones follow, removed ones leave a gap."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill import open_dataset
from recordmill.pipeline.build.base.live_analysis import continues
from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Listener
from recordmill.pipeline.build.summaries.words import class_names
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions import acts
from recordmill.pipeline.versions.publishing import Published
from recordmill.pipeline.versions.stores.base import OutputError
from tests.messages import assert_names, raises
from tests.publish import make_live

SPEC = """
name: animals
source: {format: csv, path: rows.csv}
key: id
splits: {train: 1, test: 0.001}
label: animal
features:
  animal: {kind: category}
  color: {kind: category, order: frequency, max_classes: 3}
  text: {kind: text}
"""


class Output:
    """An output folder, and the notes of its builds."""

    def __init__(self, folder: Path, inputs: str = "") -> None:
        self.folder, self.inputs, self.notes = folder, folder / inputs, [""]

    def build(
        self, rows: str, change: tuple[str, str] = ("", ""), on_plan: Callable[..., None] = lambda *_: None
    ) -> Published:
        """Builds rows of `animal color`, one a line; the text is the animal's name."""
        cells = (row.split() for row in rows.strip().split(","))
        lines = [f"{number},{animal},{color},{animal}" for number, (animal, color) in enumerate(cells)]
        (self.inputs / "rows.csv").write_text("\n".join(["id,animal,color,text", *lines]) + "\n")
        os.utime(self.inputs / "rows.csv", (0, len(rows)))  # the same rows are the same inputs
        self.notes = []
        spec = parse_spec(SPEC.replace("rows.csv", str(self.inputs / "rows.csv")).replace(*change))
        return build(spec, str(self.folder / "out"), listener=Listener(on_plan, self.notes.append))

    def names(self, feature: str = "animal") -> list[str]:
        """Returns the names by id, after comparing the records' ids with their animals."""
        dataset = open_dataset(self.folder / "out")
        batch = next(iter(dataset.evaluation_input("train", batch_size=100, pad=False).as_numpy()))
        texts = [words[0] for words in dataset.to_words("text", batch[0]["text"])]
        assert [dataset.classes[id_] for id_ in batch[1].tolist()] == texts
        return dataset.class_names(feature)


FIRST = "dog red,cat red,dog green,dog green,emu green"
SECOND = "ant blue,dog green,zebra blue,cat blue,bee red"


@pytest.mark.slow
def test_a_name_keeps_its_id_from_version_to_version(tmp_path: Path) -> None:
    output = Output(tmp_path)
    first = output.build(FIRST)
    assert output.names() == ["cat", "dog", "emu"]
    assert output.names("color") == ["[UNK]", "green", "red"]
    assert_names(output.notes, "'test'")
    assert not output.build(FIRST).is_new  # its own names decide nothing

    second = output.build(SECOND)
    assert output.names() == ["cat", "dog", "emu", "ant", "bee", "zebra"]
    assert output.names("color") == ["[UNK]", "green", "red", "blue"]
    assert second.manifest.provenance["kept_names"] == {"animal": 3, "color": 2}
    assert_names(output.notes, "animal: 1 ", "(emu)", "color: 1 new (blue)", "animal: 3 new (ant, bee, zebra)")
    (words,) = [note for note in output.notes if note.startswith("text: ")]
    assert_names(words, "3 new", "1 ", "of 3", "train")
    assert not any(word in words for word in ("ant", "bee", "zebra"))  # no word of a text is shown
    assert not output.build(SECOND).is_new

    third = output.build(FIRST)  # a build of the first inputs, whose version gives other ids
    assert third.is_new
    assert output.names() == ["cat", "dog", "emu", "ant", "bee", "zebra"]

    make_live(str(tmp_path / "out"), first.manifest.version)
    again = output.build(SECOND)  # the second version's ids continue the first one's
    assert (again.is_new, again.manifest.version) == (False, second.manifest.version)

    fresh = output.build(SECOND, ("animal: {kind: category", "animal: {kind: category, classes: fresh"))
    assert fresh.is_new
    assert output.names() == ["ant", "bee", "cat", "dog", "zebra"]
    assert any("train" in note for note in output.notes if note.startswith("animal: "))

    vocabulary_of(first).unlink()
    assert output.build(FIRST).manifest.version != first.manifest.version  # damaged, it is not gone back to
    live = vocabulary_of(Published(str(open_dataset(tmp_path / "out").folder), first.manifest, False))
    for damaged in ("cat\ndog\n", "", "dog\ncat\nemu\nant\nbee\nzebra\n"):
        live.write_text(damaged)
        with raises(OutputError, "animal", "`recordmill versions rollback ", "out VERSION`", "fresh`"):
            output.build(SECOND)


def vocabulary_of(published: Published) -> Path:
    return Path(published.folder) / "transform_fn/assets/animal.vocabulary.txt"


@pytest.mark.nightly
def test_ids_that_another_build_gives_meanwhile_are_not_given_again(tmp_path: Path) -> None:
    output = Output(tmp_path)
    first = output.build("cat red,dog red")
    output.build("cat red,dog red,fox red")
    back = lambda *_: acts.rollback(str(tmp_path / "out"), first.manifest.version)  # noqa: E731
    with raises(OutputError, tmp_path / "out", "same command again"):
        output.build("ant red,bees red", on_plan=back)
    assert output.names() == ["cat", "dog"]
    output.build("ant red,bees red")
    assert output.names() == ["cat", "dog", "ant", "bees"]


NAMES = st.lists(st.text("abcdef", min_size=1, max_size=2).map(str.encode), unique=True)


@given(NAMES, NAMES, st.none() | st.integers(1, 9), st.sampled_from(["alphabetical", "frequency"]))
def test_kept_names_stay_and_new_ones_follow(
    frequent: list[bytes], kept: list[bytes], most: int | None, order: str
) -> None:
    names = class_names(frequent, kept, most, order)
    assert names[: len(kept)] == kept
    new = names[len(kept) :]
    assert set(new) <= set(frequent) - set(kept)
    assert len(set(names)) == len(names)
    assert new == (sorted(new) if order == "alphabetical" else [name for name in frequent if name in new])
    left = [name for name in frequent if name not in kept]
    assert set(new) == set(left if most is None else left[: max(0, most - len(kept))])


def test_a_version_continues_another_where_every_name_has_its_id() -> None:
    assert continues({"a": ("x", "y")}, {"a": ("x",)})
    assert continues({}, {})
    assert not continues({"a": ("y", "x")}, {"a": ("x",)})
    assert not continues({}, {"a": ("x",)})
