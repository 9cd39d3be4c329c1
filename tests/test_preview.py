"""`recordmill preview`, `dataset.preview()` and notebooks."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor

from recordmill.augment import GaussianBlur, RandomApply, RandomCrop, RandomFlip, RandomResizedCrop, RandomRotation
from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.cli.commands import main
from recordmill.pipeline.dataset.manifest import Split, read_manifest
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.facts import preview
from recordmill.pipeline.facts.painting import STRIPES, mask_classes, mask_color, painted
from recordmill.pipeline.facts.preview import augmentations_of, draw, reject_cards
from recordmill.pipeline.facts.sample import FeatureRoles
from recordmill.pipeline.facts.sidecars import card
from recordmill.pipeline.facts.version import shown_split
from recordmill.pipeline.inspection import COLORS, raw_image
from recordmill.transforms.images.image_stored import MaskDescription
from tests import published, shown
from tests.messages import assert_names, raises


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    output = tmp_path_factory.mktemp("shown")
    shown.write_version(output)
    return open_dataset(output)


@pytest.mark.parametrize(
    ("text", "augmentations"),
    [
        ("RandomResizedCrop(224)", [RandomResizedCrop(224)]),
        ("RandomFlip(vertical=0.5), GaussianBlur(3)", [RandomFlip(vertical=0.5), GaussianBlur(3)]),
        ("[RandomApply([RandomRotation((-10, 5))], p=0.25)]", [RandomApply([RandomRotation((-10, 5))], p=0.25)]),
        ("RandomResizedCrop((32, 48), area=(0.5, 1.0))", [RandomResizedCrop((32, 48), area=(0.5, 1.0))]),
    ],
)
def test_augmentations_are_read_from_text(text: str, augmentations: list[object]) -> None:
    assert list(map(repr, augmentations_of(text))) == list(map(repr, augmentations))


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("__import__('os').system('touch /tmp/x')", "augmentation '__import__('os').system'"),
        ("RandomFlp()", "`RandomFlip`"),
        ("RandomFlip", "write RandomFlip()"),
        ("RandomFlip(", "never closed"),
        ("RandomFlip(**{'horizontal': 1})", ": **"),
        ("RandomFlip(left=1)", "argument 'left'"),
        ("RandomResizedCrop(-1)", "size=-1"),
        ("CutMix()", "augmentation 'CutMix'"),
        ("[]", "'[]' names no augmentation"),
        ("3", "'3' names no augmentation"),
        ("", "invalid syntax"),
        ("RandomFlip(horizontal=(lambda: 1)())", "augmentation 'lambda: 1'"),
    ],
)
def test_other_text_is_refused_and_not_run(text: str, fact: str) -> None:
    with raises(DatasetError, "--augment", fact, "RandomResizedCrop(224)"):
        augmentations_of(text)


def test_a_preview_is_the_same_each_time_and_shows_more_with_augmentations(dataset: Dataset) -> None:
    plain = dataset.preview(limit=4)
    assert plain.mode == "RGB"
    assert plain.tobytes() == dataset.preview(limit=4).tobytes()
    more = dataset.preview(limit=4, augment=[RandomFlip()])
    assert more.width * more.height > 1.5 * plain.width * plain.height
    for nothing, fact in (({"key": "absent"}, "no record"), ({"label": "cat"}, "class 'cat'")):
        with raises(DatasetError, fact):
            dataset.preview(**nothing)


MASK = np.uint8([[0, 1, 255]] * 3)[..., np.newaxis]


def test_a_legend_names_classes_with_their_shares_and_colours() -> None:
    given = {"stored": "bytes", "encoding": "png", "shape": (2, 4, 1), "dtype": "uint8", "offset": (), "scale": ()}
    mask = MaskDescription(**given, image="image", classes={"0": "ground", "1": "cat", "9": "dog"}, ignore=255)
    pixels = np.array([0, 0, 0, 0, 1, 1, 9, 255], np.uint8).reshape(2, 4, 1)
    found = mask_classes(mask, [pixels, pixels])
    assert [(each.name, each.share) for each in found[:3]] == [("ground", 0.5), ("cat", 0.25), ("dog", 0.125)]
    assert "255" in found[3].name
    assert found[3].share == 0.125
    shown = np.asarray(painted(pixels, None, 255))
    colors = np.array([ImageColor.getrgb(each.color) for each in found[1:3]])
    assert shown[1, 1:3].tolist() == (colors // 2).tolist()
    bare = replace(mask, classes=None, ignore=None)
    assert [each.name for each in mask_classes(bare, [pixels])] == ["value 0", "value 1", "value 9", "value 255"]


def test_masks_tint_their_image_and_hatch_ignored_pixels() -> None:
    assert len({mask_color(value) for value in range(1, 256)}) == 255, "the colours of all values differ"
    seen = np.asarray(painted(MASK, np.full((3, 3, 3), 100, np.uint8), 255))
    assert seen[1, 0].tolist() == [100] * 3
    assert seen[1, 1].tolist() == [50 + level // 2 for level in ImageColor.getrgb(COLORS[0])]
    assert seen[1, 2].tolist() in STRIPES.tolist()


@pytest.mark.parametrize(("ignore", "outside"), [(255, 255), (None, 0)])
def test_moved_masks_show_what_the_reader_gives_outside(ignore: int | None, outside: int) -> None:
    stored: dict[str, Any] = {"stored": "bytes", "encoding": "png", "shape": (3, 3, 1), "dtype": "uint8"}
    mask = MaskDescription(**stored, offset=(0.0,), scale=(1.0,), image="image", ignore=ignore)
    changes = [RandomCrop(3, pad=3)]
    seen = [preview._augmented(changes, 0, epoch, MASK * 0 + 7, mask=mask) for epoch in range(9)]
    assert {*np.unique(seen).tolist()} == {7, outside}


def test_records_without_images_are_cards_of_text(tmp_path: Path) -> None:
    published.write_version(tmp_path)
    tables = open_dataset(tmp_path)
    assert tables.preview(limit=3).height > 50
    with raises(DatasetError, "augmentations", "small", "leave them out"):
        tables.preview(augment=[RandomFlip()])


def test_a_chat_shows_its_answer_after_a_long_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, said = published.row, {"text": [2] * 400 + [3, 4], "text_loss_mask": [0] * 400 + [1, 1]}
    monkeypatch.setattr(published, "row", lambda number: row(number) | said)
    chat = published.FEATURES["text"] | {"kind": "chat", "train": "last"}
    published.write_version(tmp_path, 20, features=published.FEATURES | {"text": chat})
    opened = open_dataset(tmp_path)
    _, lines = preview._card(FeatureRoles(opened), opened.records("train")[0], (), None)
    assert "⟦tree über⟧" in lines[: preview.LINES]


def test_a_character_is_of_the_first_font_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Font(str):
        def getmask(self, character: str) -> bytes:
            return character.encode() if character in self else b"a box"

    latin, world = Font("ab "), Font("abж中")
    monkeypatch.setattr(preview, "fonts", lambda: [latin, world])
    preview.font_of.cache_clear()
    assert [preview.font_of(each) for each in "a ж中🙂"] == [latin, latin, world, world, latin]
    preview.font_of.cache_clear()


def test_rejects_show_their_file_where_it_can_be_decoded(dataset: Dataset, tmp_path: Path) -> None:
    folder = shown.write_version(tmp_path / "out")
    rejects = [{"code": "undecodable_image", "file": f"{name}.png", "line": None, "message": "x"} for name in "abc"]
    (folder / shown.REJECTS).write_text("".join(json.dumps(reject) + "\n" for reject in rejects))
    (tmp_path / "in").mkdir()
    Image.new("RGB", (30, 20), "red").save(tmp_path / "in/a.png")
    (tmp_path / "in/b.png").write_bytes(b"\x89PNG cut off")
    cards = reject_cards(open_dataset(tmp_path / "out"), tmp_path / "in", 3)
    assert [len(tiles) for tiles, _ in cards] == [1, 0, 0]
    assert draw(cards).width > 500
    assert [len(tiles) for tiles, _ in reject_cards(dataset, None, 3)] == [0]


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "link.png", "bomb.png", "absent.png", ".", ""])
def test_no_file_beyond_the_sources_is_opened_and_none_of_too_many_pixels(path: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    header = bytes.fromhex("89504e470d0a1a0a0000000d49484452") + (60_000).to_bytes(4, "big") * 2
    (tmp_path / "in/bomb.png").write_bytes(header + bytes(100))
    Image.new("RGB", (3, 2)).save(tmp_path / "secret.png")
    (tmp_path / "in/link.png").symlink_to(tmp_path / "secret.png")
    assert raw_image(tmp_path / "in", path) is None


def test_a_notebook_shows_a_dataset(dataset: Dataset, tmp_path: Path) -> None:
    page = dataset._repr_html_()
    assert page.count("<img ") == 8
    assert "<b>shown</b>" in page
    assert "<script" not in page
    assert re.search(r"<td>train</td><td>30</td>", page)
    published.write_version(tmp_path)
    without = open_dataset(tmp_path)._repr_html_()
    assert "<td>row/" in without
    assert "<img" not in without


@pytest.mark.parametrize("augment", [(), (RandomFlip(),)])
def test_a_notebook_shows_an_input(dataset: Dataset, augment: tuple[RandomFlip, ...]) -> None:
    page = dataset.training_input("train", batch_size=4, augment=augment)._repr_html_()
    assert page.count("<img ") == 8
    assert "<b>shown" in page
    assert "7 batches an epoch" in page
    assert "<td>image</td><td>[4, 24, 24, 3]</td><td>float32</td>" in page
    assert "<td>label</td><td>[4]</td><td>int64</td>" in page


def test_the_command_writes_a_file(dataset: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "preview.png"
    command = [sys.executable, "-m", "recordmill", "preview", str(dataset.folder), "-o", str(file)]
    done = subprocess.run([*command, "--augment", "RandomFlip()"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(file))
    assert Image.open(file).height > 100
    done = subprocess.run([*command, "--class", "cat"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert_names(done.stderr, "class 'cat'")


def test_the_split_that_people_see_first_is_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shown.write_version(tmp_path / "out")
    manifest = read_manifest(folder)
    turned = replace(manifest, splits=dict(reversed(manifest.splits.items())))
    published.write_manifest(folder, turned)
    assert (next(iter(turned.splits)), shown_split(turned)) == ("test", "train")
    assert 'training_input("train"' in card(folder, turned).decode()
    with pytest.raises(SystemExit):
        main(["preview", str(folder), "-n", "2", "-o", str(tmp_path / "first.png")])
    wanted = open_dataset(folder).preview("train", limit=2)
    assert np.array_equal(np.asarray(Image.open(tmp_path / "first.png")), np.asarray(wanted))
    filled = replace(turned, splits=turned.splits | {"train": Split(())})
    assert shown_split(filled) == "test"
    assert shown_split(replace(turned, splits={"train": Split(())})) is None


@pytest.mark.parametrize("command", ["report", "preview"])
def test_a_file_that_cannot_be_written_is_named(
    dataset: Dataset, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with raises(SystemExit, 1):
        main([command, str(dataset.folder), "--output", str(tmp_path)])
    assert_names(" ".join(capsys.readouterr().err.split()), tmp_path, "a folder", "--output")


def test_rejects_are_chosen_by_nothing(dataset: Dataset, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["preview", str(dataset.folder), "--rejects", "--key", "a", "--augment", "RandomFlip()"]
    with raises(SystemExit, 1):
        main(command)
    assert_names(" ".join(capsys.readouterr().err.split()), "--key and --augment", "--rejects")
