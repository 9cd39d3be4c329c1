"""Opens TFRecord files that exist, as a dataset: `open_tfrecords("old/*.tfrecord", index="out/old")`."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from recordmill.dataset import Dataset, open_dataset
from recordmill.pipeline.adopt.adopt import Adoption, adopt
from recordmill.pipeline.adopt.stated import with_classes

Globs: TypeAlias = str | Path | Sequence[str | Path]


def open_tfrecords(
    files: Globs | Mapping[str, Globs],
    index: str | Path,
    *,
    features: Mapping[str, Any] | None = None,
    label: str | None = None,
    key: str | None = None,
    splits: Mapping[str, float] | None = None,
    name: str | None = None,
) -> Dataset:
    """Opens TFRecord files in place; the first time, and after changes, reads the new ones once.

    What was guessed, left out or lost goes to the log `recordmill` as warnings, when files are read.

    Args:
        files: files, folders, globs or URLs, by split: `{"train": "old/train-*"}`. Without splits, by the files' names.
        index: a folder or URL for the dataset's description, about 8 bytes a record; the files stay as they are.
        features: in a spec's words, `{"image": {"kind": "image", "column": "image/encoded"}}`; or TensorFlow's parsing
            options by the records' names, `{"image/encoded": tf.io.FixedLenFeature([], tf.string)}`. None: found.
        label: the feature to predict; None: found.
        key: the records' feature with their keys; None: a key is the file and the record's number.
        splits: shares by which the keys' hashes divide the files: `{"train": 90, "validation": 10}`.
        name: the dataset's name; None: of the last part of `index`.

    Returns:
        The dataset, as `open_dataset` gives.

    Raises:
        UserError: a file is missing, compressed or no TFRecord; the features do not fit; or `index` cannot be written.
    """
    given = files if isinstance(files, Mapping) else {"": files}
    globs = {
        split: [str(some)] if isinstance(some, str | Path) else list(map(str, some)) for split, some in given.items()
    }
    stated = None if features is None else {each: with_classes(words) for each, words in features.items()}
    done = adopt(Adoption(globs, str(index), stated, label, key, splits or {}, name))
    for note in done.notes:
        logging.getLogger("recordmill").warning("%s", note)
    for reason, records in done.manifest.rejects.get("by_reason", {}).items() if done.is_new else ():
        logging.getLogger("recordmill").warning("%d records are left out: %s", records, reason)
    return open_dataset(index, files=[glob for some in globs.values() for glob in some])
