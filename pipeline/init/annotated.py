"""Recognizes annotated images (COCO, Pascal VOC, YOLO, Open Images, LabelMe, VIA), with a source for each split."""

import json
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from recordmill.pipeline.dataset.placement import SPLITS
from recordmill.pipeline.init.beside import find_beside, in_mask_folder
from recordmill.pipeline.init.doubts import Doubt, UnknownDataError
from recordmill.pipeline.init.guess import Choice
from recordmill.pipeline.init.recognize import SMALL_FILES, Recognized, read_head
from recordmill.pipeline.safe_text import count
from recordmill.pipeline.sources.batches import by_key, spread
from recordmill.pipeline.sources.files import FileInfo, Files
from recordmill.pipeline.sources.formats.annotated_rows import YAML_ENDINGS, ImageList, image_key
from recordmill.pipeline.sources.formats.image_fields import Beside
from recordmill.pipeline.sources.formats.image_folder import NAMES
from recordmill.pipeline.sources.globs import escape, without_slash
from recordmill.pipeline.sources.naming import are_divided, divided, split_of
from recordmill.pipeline.sources.paths import is_image, listed, note
from recordmill.pipeline.yaml_document import SpecError, load_yaml

LOOKED_AT = 64  # files to read the beginnings of
IS_COCO = re.compile(
    rb'\s*\{.*("images"\s*:\s*\[\s*\{[^{}]*"(file_name|coco_url)"|"annotations"\s*:\s*\[\s*\{.*"image_id")\s*:',
    re.DOTALL,
)
COCO_KIND = re.compile(r"(?<=/)(?:instances|captions|person_keypoints|stuff|image_info)_(?=[^/]+\.json\Z)")
FILE_NAME = re.compile(rb'"file_?name"\s*:\s*("(?:[^"\\]|\\.)*")')
COCO_URL = re.compile(rb'"coco_url"\s*:\s*"[^"]*?([^"/]+/[^"/]+")')  # of LVIS, without `file_name`
IS_LABELME = re.compile(rb'\s*\{.*"shapes"\s*:\s*\[', re.DOTALL)
HOLDS_IMAGE = re.compile(rb'"imageData"\s*:\s*"')
IS_VIA = re.compile(rb'\s*\{.*"(_via_img_metadata|shape_attributes)"\s*:\s*\{', re.DOTALL)
IS_VOC = re.compile(b"|".join("<annotation".encode(name) for name in ("utf-8", "utf-16-le", "utf-16-be")))
IS_YOLO = re.compile(rb"\s*\d++(?:\.\d*+)?([ \t]++-?(?:\d++\.?\d*+|\.\d++)([eE]-?\d++)?){4,}[ \t\r]*(\n|\Z)")
YAML_NAMES = re.compile(rb"^names\s*:", re.MULTILINE)
KNOWN: Mapping[str, Mapping[str, Choice]] = {  # options of boxes that the format decides, without asking the user
    "coco": {"order": ("coco", "as COCO's JSON has them"), "unit": ("absolute", "pixels")},
    "voc": {"order": ("corners", "as Pascal VOC's XML has them"), "unit": ("absolute", "pixels")},
    "yolo": {"order": ("center", "as YOLO's text has them"), "unit": ("relative", "")},
    "open_images": {"order": ("corners", "as the source gives Open Images' columns"), "unit": ("relative", "")},
    **dict.fromkeys(("labelme", "via"), {"order": ("corners", "around the regions"), "unit": ("absolute", "pixels")}),
}
Source = Mapping[str, Any]
Pairs = Mapping[FileInfo, FileInfo]  # images and their annotation files


@dataclass(frozen=True)
class Listing:
    """The files of a folder."""

    files: Files
    folder: str
    images: Sequence[FileInfo]
    others: Sequence[FileInfo]
    has_masks: bool = False  # whether the folder also has masks of these images

    def ending(self, *endings: str) -> list[FileInfo]:
        """Lists the other files with given endings."""
        return [file for file in self.others if file.path.lower().endswith(endings)]

    def heads(self, files: Iterable[FileInfo]) -> list[tuple[FileInfo, bytes]]:
        """Reads the beginnings of some of the files."""
        return [(file, read_head(self.files, file.path)) for file in spread(list(files), LOOKED_AT)]

    def recognized(
        self, sources: Sequence[Source], shown: Sequence[FileInfo], what: str, without: Sequence[str] = ()
    ) -> Recognized:
        """Returns the sources, without splits unless several include train. Raises: UnknownDataError: no images."""
        if not sources:
            why = "has annotations without their images: give the folder that holds both"
            raise UnknownDataError(f"{without[0]}: {self.folder} {why}")
        named = [source for source in sources if source["split"]]
        is_divided = are_divided(source["split"] for source in named)
        others = [source["path"] for source in sources if is_divided and source not in named]
        sources = named if is_divided else [{**each, "split": None} for each in sources]
        form = sources[0]["format"]
        is_whole = form in ("coco", "via") or len(self.images) <= SMALL_FILES
        reasons = {"format": f"{what}; {count(len(self.images), 'image')}"}
        notes = note("left out, without images or annotations", without)
        notes += note("left out, without a split in their names", others)
        return Recognized(sources, shown, is_whole, reasons, notes, known={"boxes": KNOWN[form]})


def list_folder(files: Files, path: str) -> list[FileInfo] | None:
    """Lists a folder's files, recursively, without empty ones except images; None if it is not a folder."""
    if not files.is_folder(path):
        return None
    below = files.match(f"{escape(without_slash(path) or path)}/**")
    return [file for file in below if file.bytes or is_image(file.path)]


def recognize_annotated(files: Files, path: str, in_folder: Sequence[FileInfo] | None) -> Recognized | None:
    """Finds the sources of annotated images at an absolute path or URL: a folder (of files `in_folder`) or a file.

    Returns None if none of these formats is found. Raises: UnknownDataError: the images are missing; OSError.
    """
    folder, filled = without_slash(path), in_folder
    if filled is None:
        looks: dict[str, Callable[[bytes], object]] = dict.fromkeys(YAML_ENDINGS, YAML_NAMES.search)
        looks |= {".json": lambda head: IS_COCO.match(head) or IS_VIA.match(head), ".csv": _has_boxes}
        look = looks.get(posixpath.splitext(path)[1].lower())
        if not look or not files.match(escape(path)) or not look(read_head(files, path)):
            return None
        folder = posixpath.dirname(path)
        folder = posixpath.dirname(folder) if posixpath.basename(folder) == "annotations" else folder
        ending, below = posixpath.splitext(path)[1], list_folder(files, folder) or []
        are_used = ((file, file.path == path or _describes_classes(file.path)) for file in below)
        filled = [file for file, is_used in are_used if is_used or posixpath.splitext(file.path)[1] != ending]
    images = [file for file in filled if is_image(file.path)]
    others = [file for file in filled if not is_image(file.path)]
    if any(posixpath.basename(file.path) in NAMES for file in others):
        return None
    cut = len(folder) + 1
    inside = [file._replace(path=file.path[cut:]) for file in images] if others else []
    beside = find_beside(files, folder, inside)[0]
    masks = {f"{folder}/{file.path}" for file in Beside.pair(inside, beside)[2].files()}
    named = {file.path for file in images if in_mask_folder(file.path)}
    masks |= named if len(named) < len(images) else set()
    listing = Listing(files, folder, [file for file in images if file.path not in masks], others, bool(masks))
    found = next(filter(None, (look(listing) for look in LOOKS)), None)
    remedy = f"As rows with masks: `format: image_folder`, `beside: {json.dumps(beside)}`; lists: `image_list`"
    doubt = Doubt(posixpath.basename(folder), f"{count(len(masks), 'mask')} beside the images are left out", remedy)
    return replace(found, doubts=[*found.doubts, doubt]) if found and masks else found


def _common(files: Iterable[FileInfo]) -> str:
    """Returns the deepest folder of all files."""
    return "/".join(posixpath.commonprefix([posixpath.dirname(file.path).split("/") for file in files]))


def _json(listing: Listing, form: str, is_one: re.Pattern[bytes], what: str) -> Recognized | None:
    stems = {posixpath.splitext(file.path)[0] for file in listing.images}
    alone = (file for file in listing.ending(".json") if posixpath.splitext(file.path)[0] not in stems)
    heads = {file: head for file, head in listing.heads(alone) if is_one.match(head)}
    groups = by_key(heads, lambda file: posixpath.split(COCO_KIND.sub("", file.path)))
    by_name = by_key((file.path for file in listing.images), posixpath.basename)
    start = len(listing.folder) + 1
    sources, used, without = list[Source](), list[FileInfo](), list[str]()
    for (folder, name), some in groups.items():
        split = split_of(name, posixpath.basename(folder))
        found = Counter[str]()
        for text in chain.from_iterable(_names(heads[file]) for file in some):
            written = ""
            with suppress(ValueError):  # damaged, as a build reports
                written = str(json.loads(text)).replace("\\", "/")
            paths = (path for path in by_name.get(posixpath.basename(written), ()) if path.endswith(f"/{written}"))
            found.update(path.removesuffix(f"/{written}") for path in paths)
        rank = {each: (each == folder, split_of(*each[start:].split("/")) == split, n) for each, n in found.items()}
        root = max(rank, key=rank.__getitem__, default=None)  # preferably its own, then of its split, then of most
        if root is None or all(posixpath.basename(file.path).startswith("image_info_") for file in some):
            without += [file.path for file in some]
            continue
        path = some[0].path if len(some) == 1 else f"{escape(folder)}/*_{escape(name)}"
        images = None if root == folder else root
        sources.append({"format": form, "path": path, "images": images, "split": split})
        used += some
    return listing.recognized(sources, used, what, without) if heads else None


def _names(head: bytes) -> list[bytes]:
    """Finds the names of images, JSON strings, in the beginning of a file."""
    return FILE_NAME.findall(head) or [b'"' + name for name in COCO_URL.findall(head)]


def _voc(listing: Listing) -> Recognized | None:
    paired = _paired(listing, ".xml", IS_VOC.search)
    if not paired:
        return None
    lists = [file for file in listing.ending(".txt") if posixpath.dirname(file.path).endswith("/ImageSets/Main")]
    images, sources = {"images": _common(paired)} if listing.has_masks else {}, list[Source]()
    for file in lists:
        if split := SPLITS.get(posixpath.basename(file.path)[:-4].lower()):
            path = file.path.rpartition("/ImageSets/")[0]
            sources.append({"format": "voc", "path": path, **images, "image_list": file.path, "split": split})
    sources = sources or _by_folder(listing, paired, "voc")
    return listing.recognized(sources, [*_shown(listing, paired), *lists], "Pascal VOC's XML")


def _labelme(listing: Listing) -> Recognized | None:
    paired = _paired(listing, ".json", IS_LABELME.match)
    found = [] if listing.images else listing.heads(listing.ending(".json"))
    alone = {file: head for file, head in found if IS_LABELME.match(head)}
    sources = _by_folder(listing, paired, "labelme") if paired else []
    if any(map(HOLDS_IMAGE.search, alone.values())):
        sources = [{"format": "labelme", "path": listing.folder, "split": None}]
    shown, without = [*_shown(listing, paired), *alone], [] if sources else [file.path for file in alone]
    return listing.recognized(sources, shown, "LabelMe's JSON", without) if paired or alone else None


def _yolo(listing: Listing) -> Recognized | None:
    named = [file for file, head in listing.heads(listing.ending(*YAML_ENDINGS)) if YAML_NAMES.search(head)]
    paired = _paired(listing, ".txt", IS_YOLO.match, 0 if named else 0.5)
    if not paired:
        return None
    sources, notes, doubts = _stated(listing, paired, named[0].path) if named else ([], [], [])
    named += listing.ending("/classes.txt", ".names")
    sources = sources or _by_folder(listing, paired, "yolo", named[0].path if named else None)
    found = listing.recognized(sources, [*_shown(listing, paired), *named[:1]], "YOLO's text")
    return replace(found, notes=[*notes, *found.notes], doubts=doubts)


def _stated(listing: Listing, paired: Pairs, path: str) -> tuple[list[Source], list[str], list[Doubt]]:
    """Returns the sources of splits in YOLO's YAML, by folders or lists of images, with notes and doubts."""
    stated, (folder, name) = dict[str, Any](), posixpath.split(path)
    with suppress(SpecError):  # the plan reports it
        stated = load_yaml(read_head(listing.files, path).decode(errors="replace"), path, "`names:`").value
    sources, absent, shared, by_split = list[Source](), list[str](), list[str](), dict[FileInfo, str]()
    roots = (posixpath.join(folder, str(stated.get("path") or "")), folder)
    for split, some in {split: stated[word] for word, split in SPLITS.items() if stated.get(word)}.items():
        some = some if isinstance(some, list) else [some]
        for entry in (str(each).replace("\\", "/") for each in some):
            ways = (posixpath.join(root, each) for root in roots for each in (entry, entry.removeprefix("../")))
            found = (_named(listing, posixpath.normpath(way).replace(":/", "://")) for way in ways)
            images, options = next(filter(lambda each: each[0], found), ([], {}))
            twice = [image.path for image in images if by_split.setdefault(image, split) != split]
            absent, shared = absent + ([] if images else [entry]), shared + twice
            if len(twice) < len(images):
                labels = _common([paired[image] for image in images if image in paired] or images)
                if len(some) > 1:  # two folders may have images with the same name
                    options = {"images": listing.folder, "image_list": options["image_list"] or options["images"]}
                sources.append({"format": "yolo", "path": labels, **options, "names": path, "split": split})
    sources = sources if any(source["split"] == "train" for source in sources) else []  # not all but `train`
    left = [image.path for image in listing.images if image not in by_split] if sources else []
    remedy = "Write paths of folders, or lists, below it; images in a list are relative to its folder"
    notes = note(f"images that {name} gives to two splits; folders or lists with only such images are left out", shared)
    notes += note(f"left out, missing in {name}", left)
    return sources, notes, [Doubt(name, f"images are missing at {listed(absent, 3)}", remedy)] if absent else []


def _named(listing: Listing, path: str) -> tuple[list[FileInfo], Source]:
    """Returns the images in a folder, or in a list, with lines relative to its folder; and the source's options."""
    is_list = any(file.path == path for file in listing.others)
    folder = posixpath.dirname(path) if is_list else path
    listed = ImageList.read(listing.files, path if is_list else None)
    below = (image for image in listing.images if image.path.startswith(f"{folder}/"))
    images = [image for image in below if image.path[len(folder) + 1 :] in listed]
    return images, {"images": folder, "image_list": path if is_list else None}


def _paired(listing: Listing, ending: str, is_annotation: Callable[[bytes], object], least: float = 0.5) -> Pairs:
    """Returns images' annotation files; empty unless a share above `least` are annotations."""
    by_key = {image_key(file.path): file for file in listing.ending(ending)}
    pairs = {image: by_key.get(image_key(image.path)) for image in (listing.images if by_key else ())}
    paired = {image: file for image, file in pairs.items() if file}
    found = [bool(is_annotation(head)) for _, head in listing.heads(paired.values())]
    return paired if sum(found) > least * len(found) else {}


def _by_folder(listing: Listing, paired: Pairs, form: str, names: str | None = None) -> list[Source]:
    """Returns a source for each split in the names of image folders, or one for all."""
    sources, start = list[Source](), len(listing.folder) + 1
    for split, images in divided(listing.images, lambda image: image.path[start:].split("/")[:-1]).items():
        path, folder = _common([paired[image] for image in images if image in paired] or images), _common(images)
        options = {"path": path, "images": None if folder == path else folder, "names": names, "split": split}
        sources.append({"format": form, **options})
    return sources


def _shown(listing: Listing, paired: Pairs) -> list[FileInfo]:
    images = spread(listing.images, SMALL_FILES)
    return [*images, *(paired[image] for image in images if image in paired)]


def _open_images(listing: Listing) -> Recognized | None:
    tables = listing.ending(".csv")
    heads = [(file, head) for file, head in listing.heads(tables) if _has_boxes(head)]
    names = [file for file in tables if _describes_classes(file.path)][:1]
    sources, without = list[Source](), list[str]()
    for file, head in heads:
        split = split_of(*re.split(r"[-_.]", posixpath.basename(file.path)))
        ids = {line.partition(b",")[0].decode("latin-1") for line in head.split(b"\n")}
        places = [posixpath.split(posixpath.splitext(image.path)[0]) for image in listing.images]
        folders = [folder for folder, stem in places if stem in ids]
        folders = folders or [each for each, _ in places if split and split_of(posixpath.basename(each)) == split]
        if folders:
            described = names[0].path if names else None
            options = {"path": file.path, "images": folders[0], "names": described, "split": split}
            sources.append({"format": "open_images", **options})
        else:
            without.append(file.path)
    shown = [*_shown(listing, {}), *(file for file, _ in heads), *names]
    return listing.recognized(sources, shown, "Open Images' CSV", without) if heads else None


LOOKS: Sequence[Callable[[Listing], Recognized | None]] = (
    partial(_json, form="coco", is_one=IS_COCO, what="COCO's JSON"),
    _voc,
    _yolo,
    _labelme,
    partial(_json, form="via", is_one=IS_VIA, what="VIA's JSON"),
    _open_images,
)


def _has_boxes(head: bytes) -> bool:
    cells = {*head.partition(b"\n")[0].strip().split(b",")}
    return cells >= {b"ImageID", b"LabelName", b"XMin", b"IsInside"}  # others are a table of boxes


def _describes_classes(path: str) -> bool:
    return "class-descriptions" in posixpath.basename(path)
