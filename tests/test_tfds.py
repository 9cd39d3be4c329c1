"""TensorFlow Datasets opens a version unchanged, and reads the same as our reader."""

from pathlib import Path

import numpy as np
import pytest

from recordmill import open_dataset
from recordmill.pipeline.build.run_options import Published

pytestmark = pytest.mark.slow
tfds = pytest.importorskip("tensorflow_datasets")


def test_equal_values(every_kind: tuple[Path, Published]) -> None:
    folder, published = every_kind
    builder = tfds.builder_from_directory(published.folder)
    dataset = open_dataset(folder / "out")
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == dict(dataset.splits)
    assert builder.info.features["label"].names == dataset.classes
    assert builder.info.features["category"].names == dataset.class_names("category")
    config = tfds.ReadConfig(interleave_cycle_length=1)
    theirs = list(builder.as_dataset(split="test", read_config=config).as_numpy_iterator())
    ours = [
        {**{name: value[0] for name, value in features.items()}, "label": label[0]}
        for features, label in dataset.evaluation_input("test", batch_size=1, with_key=True).as_numpy()
    ]
    assert len(theirs) == len(ours) == dataset.splits["test"]
    for their, our in zip(theirs, ours, strict=True):
        for name in (
            "key",
            "label",
            "category",
            "given",
            "number",
            "plain",
            "note",
            "count",
            "weight",
            "pixels",
            "bucket",
            "gap",
            "gap_missing",
            "maybe",
            "hashed",
            "crossed",
            "letters_length",
            "triple",
            "open",
        ):
            np.testing.assert_array_equal(their[name], our[name], err_msg=name)
        kept = our["captions_lengths"][: our["captions_length"]]
        np.testing.assert_array_equal(their["captions_lengths"], kept)
        flat = [our["captions"][text, :length] for text, length in enumerate(kept)]
        np.testing.assert_array_equal(their["captions"], np.concatenate([*flat, np.zeros(0, np.int64)]))
        for name in ("boxes", "levels", "places", "tags", "pieces"):
            length = len(their[name])
            np.testing.assert_array_equal(their[name], our[name][:length], err_msg=name)
            assert not our[name][length:].any()
        assert len(their["frames"]) == our["frames_length"]
        text = np.trim_zeros(our["text"], "b")
        np.testing.assert_array_equal(their["text"], text)
        assert np.abs(their["png"] / 255 - our["png"]).max() < 1e-6
        assert their["jpeg"].shape == our["jpeg"].shape  # its pixels differ: another DCT
