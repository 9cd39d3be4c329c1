"""Finds the files beside images, such as masks, as `beside` of the source `image_folder`.

Files of one folder, or with one beginning or ending of their names, belong together; they lie beside images if nearly
all have one of the same name. Names or pixels must tell them from images.
"""

import logging
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from PIL import Image

from recordmill.pipeline.dataset.placement import SPLITS, SYNONYMS
from recordmill.pipeline.init.doubts import Doubt
from recordmill.pipeline.sources.batches import spread
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.annotated_rows import ImageList
from recordmill.pipeline.sources.formats.image_fields import IMAGE, Beside, Pattern
from recordmill.pipeline.sources.naming import DEPTH, MASK_NAME, PART_FOLDER, SPLIT_WORD
from recordmill.pipeline.sources.paths import ARRAY, is_image, join, listed, may_be_image

EXACT = (".png", ".tif", ".tiff", ".gif", ".bmp", ARRAY)  # formats of masks
START = re.compile(r"([A-Za-z][A-Za-z0-9]*[ _-])+")  # words at the beginning of a name
END = re.compile(r"([A-Za-z0-9]*[A-Za-z][ _-])+")  # at its end, read backwards in linear time
WORD = re.compile(r"[ _-]?[A-Za-z0-9]+[ _-]?")
logging.getLogger("PIL").addHandler(logging.NullHandler())  # it logs files that it cannot open, instead of stderr
ImageLists = dict[str, tuple[FileInfo, list[str]]]  # by split, the list and its images' paths
MOST_FOLDERS, MOST_NAMES, LOOKED_AT, OPENED, FLAT = 16, 16, 500, 4, 64


@dataclass(frozen=True)
class Part:
    """Files that may lie beside others, or be the images: their folder and pattern, and the folder's paths."""

    folder: str
    pattern: str
    paths: Sequence[str]

    def keyed(self, paths: Sequence[str]) -> dict[str, str]:
        """Returns the paths of the pattern by key."""
        key = Pattern.of(self.pattern).key
        return {each: path for path in paths if (each := key(path)) is not None}

    @cached_property
    def keys(self) -> dict[str, str]:
        """All paths of the pattern by key."""
        return self.keyed(self.paths)

    @property
    def name(self) -> str:
        """The end of the files' names."""
        return self.pattern.rpartition("*")[2] if "*" in self.pattern else ""

    @cached_property
    def is_named(self) -> bool:
        """Whether a word for masks is in the pattern."""
        return bool(MASK_NAME.search(self.pattern))

    @cached_property
    def is_plain(self) -> bool:
        """Whether the names are just the images'."""
        return self.pattern == "*" or "*" not in self.pattern

    @cached_property
    def some(self) -> dict[str, str]:
        """Some paths by key; empty if a file's format may blur masks."""
        some = self.keyed(spread(self.paths, LOOKED_AT))
        return some if all(path.lower().endswith(EXACT) for path in some.values()) else {}

    def is_beside(self, image: "Part") -> bool:
        """Whether nearly all files have an image; half of those with a mask's name."""
        is_own = self.folder == image.folder != "" or self.pattern == image.pattern
        has_image = 10 * sum(key in image.keys for key in self.some) >= (5 if self.is_named else 9) * len(self.some)
        return bool(self.some) and not is_own and self.pattern != "*" and has_image


def find_beside(files: Files, folder: str, found: Sequence[FileInfo]) -> tuple[dict[str, str], list[Doubt]]:
    """Finds files beside a folder's images, by column, with the images' pattern if needed; and doubts about others."""
    paths = [file.path for file in found if may_be_image(file.path)]
    if not any(path.lower().endswith(EXACT) for path in paths):
        return {}, []
    parts = [part for name, some in _folders(paths).items() for part in _parts(name, some)]
    images = [part for part in parts if not part.is_named and (part.is_plain or part.folder or not parts[-1].folder)]
    is_flat = cache(lambda path: _is_flat(files, join(folder, path)))

    def are_flat(part: Part) -> bool:
        return all(map(is_flat, spread([*part.keys.values()], OPENED)))

    pairs = [(image, [each for each in parts if each.is_beside(image)]) for image in images]
    for image, others in pairs:
        others[:] = [each for each in others if each.is_named or (are_flat(each) and not are_flat(image))]
    pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0].keys), pair[0].is_plain, bool(pair[0].folder)))
    image, others = pairs[-1]
    if not others:  # masks, by name and pixels, may lie beside a folder of images with other names, as in Open Images
        masks = list(filter(in_mask_folder, filter(is_image, (file.path for file in found))))
        kept = {file.path for file in found if is_image(file.path) and "/" in file.path} - {*masks}
        folders = {SPLIT_WORD.sub("*", path.split("/")[-2]) for path in kept}
        if len(folders) != 1 or not masks or not all(map(is_flat, spread(masks, OPENED))):
            return {}, []
        what = f"{len(masks):,} masks by folder and pixels are left out: no image's name fits"
        return {IMAGE: f"{folders.pop()}/*"}, [Doubt(masks[0], what, "Rename them")]
    others.sort(key=lambda each: (not each.is_named, not MASK_NAME.search(each.name), each.pattern))
    chosen = {each.folder: each for each in reversed(others)}
    beside = dict[str, str]()
    for each in sorted(chosen.values(), key=others.index):
        own = re.sub(r"\W", "", each.name or each.pattern).strip("_")
        beside[own if beside or DEPTH.search(own) and not each.is_named else "mask"] = each.pattern
    left = [each.pattern for each in others if each.pattern not in beside.values()]
    with_images = {IMAGE: image.pattern, **beside}
    is_needed = any(is_image(file.path) for file in Beside.pair(found, with_images)[1])
    doubt = Doubt(listed(left, 3), "files of these names are left out", "Others: name them in `beside`")
    is_needed |= not image.is_plain or "/" in image.pattern  # a folder alone may stand anywhere
    return with_images if is_needed else beside, [doubt] if left else []


def in_mask_folder(path: str) -> bool:
    """Whether a file lies in a folder named as those of masks."""
    return bool(MASK_NAME.search(f"/{posixpath.basename(posixpath.dirname(path))}"))


def part_doubts(images: Sequence[FileInfo], pairs: Beside) -> list[Doubt]:
    """Doubts images without a file whose names begin with another image's, as `1_mask_2.png` beside `1.png`."""
    stems = [posixpath.splitext(image.path)[0] for image in images]
    known = {stem for stem, file in zip(stems, pairs.columns.get("mask", ()), strict=False) if file}
    parts = [stem for stem in stems if any(stem[: at.start()] in known for at in re.finditer("[ _-]", stem))]
    odd = [posixpath.basename(stem) for stem in parts if stem not in known]
    remedy = "Move them out, or list the images: `image_list: FILE`"
    return [Doubt(listed(odd, 2), "rows by their folder, but by their names parts of another", remedy)] if odd else []


def image_lists(files: Files, images: Sequence[FileInfo], others: Sequence[FileInfo]) -> ImageLists:
    """Finds the list of each split's images, as in VOC's `ImageSets/Segmentation`, with their paths."""
    groups = dict[str, ImageLists]()
    for file in others:
        folder, name = posixpath.split(file.path)
        if name.endswith(".txt") and (split := SPLITS.get(name[:-4].lower())):
            named = ImageList.read(files, file.path)
            groups.setdefault(folder, {})[split] = file, [image.path for image in images if image.path in named]
    whole = [each for each, found in groups.items() if len(found) > 1 and all(some for _, some in found.values())]
    found = groups[max(whole, key=lambda each: each.endswith("Segmentation"))] if whole else {}
    return {split: found[split] for split in SYNONYMS if split in found} if "train" in found else {}


def in_folders(beside: Mapping[str, str]) -> bool:
    """Whether files lie in other folders than images, which then name no classes."""
    return any("/" in each or "*" not in each for each in beside.values())


def _folders(paths: Sequence[str]) -> dict[str, list[str]]:
    """Groups paths by the folder that tells what they are, as a pattern; all are in ''."""
    groups = dict[str, list[str]]()
    for path in paths:
        parts = path.split("/")[:-1]
        called = next((part for part in parts if PART_FOLDER.fullmatch(part)), None)
        called = called or next((part for part in parts if part.lower() not in SPLITS), "")
        if called:
            groups.setdefault(SPLIT_WORD.sub("*", called, count=1), []).append(path)
    return {"": [*paths], **dict(sorted(groups.items(), key=lambda item: -len(item[1]))[:MOST_FOLDERS])}


def _parts(folder: str, paths: Sequence[str]) -> Iterator[Part]:
    """Yields the files of a folder: all, of a folder inside it, and of common beginnings and endings of names."""
    words, least = Counter[str](), min(LOOKED_AT, len(paths))
    for path in spread(paths, LOOKED_AT):
        stem = posixpath.splitext(posixpath.basename(path))[0]
        for is_start, match in enumerate((END.match(stem[::-1]), START.match(stem))):
            text = match[0][:: 1 if is_start else -1] if match else stem
            some = WORD.findall(text) if text != stem else []
            ends = range(1, len(some) + 1)
            words.update(f"{''.join(some[:end])}*" if is_start else f"*{''.join(some[-end:])}" for end in ends)
    inner = {path.rpartition("/")[0].partition(f"{folder}/")[2] for path in paths if folder}
    only = next(iter(inner)) if len(inner) == 1 else ""
    deeper = [f"{folder}/{only}"] if only and SPLITS.keys().isdisjoint(only.split("/")) else []
    for place in (folder, *deeper):
        for name in ("", *(name for name, count in words.most_common(MOST_NAMES) if 10 * count >= least)):
            is_plain = place and not name and "*" not in place
            yield Part(folder, place if is_plain else posixpath.join(place, name or "*"), paths)


def _is_flat(files: Files, path: str) -> bool:
    """Whether a picture is one of indices, or of few colours."""
    if not path.lower().endswith(EXACT):
        return False
    try:
        with files.open(path) as file, Image.open(file) as picture:
            return picture.mode[0] in "1LPIF" or 1 < len(picture.convert("RGB").getcolors(FLAT) or ())
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return path.endswith(ARRAY)
