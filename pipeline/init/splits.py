"""Finds splits in the names of files, folders and arrays, and in lists of images.

>>> divided(["train/a.txt", "val2017/b.txt"], lambda path: path.split("/"))
{'train': ['train/a.txt'], 'validation': ['val2017/b.txt']}
"""

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from recordmill.pipeline.dataset.placement import SPLITS, SYNONYMS
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.annotated_rows import ImageList

Item = TypeVar("Item")
Lists = dict[str, tuple[FileInfo, list[str]]]
FIRST_OR_LAST = re.compile("^[a-z]+|[a-z]+$")


def divided(items: Iterable[Item], names: Callable[[Item], Iterable[str]]) -> dict[str | None, list[Item]]:
    """Groups items by the split in their names, those without last; all are so unless train and another appear."""
    found, every = dict[str | None, list[Item]](), list(items)
    for item in every:
        found.setdefault(split_of(*names(item)), []).append(item)
    is_whole = "train" not in found or len(found.keys() - {None}) < 2
    return {None: every} if is_whole else {split: found[split] for split in (*SYNONYMS, None) if split in found}


def by_split(items: Iterable[Item], names: Callable[[Item], Iterable[str]]) -> dict[str | None, list[Item]]:
    """Groups items by split, without those of none unless all are."""
    groups = divided(items, names)
    return {split: group for split, group in groups.items() if split or len(groups) == 1}


def of_split(source: Mapping[str, Any], split: str | None) -> dict[str, Any]:
    """Returns a source's options with its split, if any."""
    return {**source, "split": split} if split else {**source}


def split_of(*names: str) -> str | None:
    """Returns the first split that a file or folder name begins or ends with: `train2017`, `val`, `mnist_train`."""
    words = chain.from_iterable(FIRST_OR_LAST.findall(name.partition(".")[0].lower()) for name in names)
    return next(filter(None, map(SPLITS.get, words)), None)


def image_lists(files: Files, images: Sequence[FileInfo], others: Sequence[FileInfo]) -> Lists:
    """Finds the list of each split's images, as in VOC's `ImageSets/Segmentation`, with their paths."""
    groups = dict[str, Lists]()
    for file in others:
        folder, name = posixpath.split(file.path)
        if name.endswith(".txt") and (split := SPLITS.get(name[:-4].lower())):
            named = ImageList.read(files, file.path)
            groups.setdefault(folder, {})[split] = file, [image.path for image in images if image.path in named]
    whole = [each for each, found in groups.items() if len(found) > 1 and all(some for _, some in found.values())]
    found = groups[max(whole, key=lambda each: each.endswith("Segmentation"))] if whole else {}
    return {split: found[split] for split in SYNONYMS if split in found} if "train" in found else {}
