r"""Usual names of columns, fields, files and folders, and the names of classes in files beside data.

>>> divided(["train/a.txt", "val2017/b.txt"], lambda path: path.split("/"))
{'train': ['train/a.txt'], 'validation': ['val2017/b.txt']}
>>> plain_name("image/class/label"), is_label("objects.label"), is_id("image_id"), bool(MASK_NAME.search("masks/*"))
('label', True, True, True)
>>> by_code({1, 2}, read_names("cat\ndog\n", is_json=False), is_sure=True)
{1: 'cat', 2: 'dog'}
"""

import json
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

from recordmill.pipeline.dataset.placement import SPLITS, SYNONYMS
from recordmill.pipeline.sources.batches import by_key
from recordmill.transforms.base.bounds import NAMES

LABELS = tuple(
    "label labels class cls category target classes categories class_name label_name label_id class_id category_id "
    "sentiment emotion rating".split()
)  # labels, the surest first
ARRAY_LABELS = {"y", "label", "labels", "target", "targets"}
CLASSES = re.compile(
    r"(?i:(.*[^a-z])?(class|category|label|type)(_?(id|name))?)|.*[a-z](Class|Category|Label|Type)(Id)?"
)  # the class of an object
ID = re.compile(r"(?i:(.*[^a-z])?(id|key|uuid|guid|uid|sha\d*|md5|hash))|.*[a-z](Id|ID|Key|Uuid)")
ROW_IDS = {"id", "_id", "key", "uid", "uuid", "guid", "qid"}  # in objects of a document
TEXTS = re.compile(r"(?i)(text|txt|caption|description|title|content|sentence|question|answer|prompt|comment)s?")
BOXES = re.compile(r"(?i)(.*_)?(b?box(es)?|bounding_?box(es)?)")  # lists of boxes
POINTS = re.compile(r"(?i)(key[ _-]?points?|points|landmarks?|polygons?)")
PIXELS = re.compile(r"(?i)pix|px|^\*(x\*)?$")  # pixels' columns, each number in them a `*`
PICTURES = re.compile(rf"(?i){PIXELS.pattern}|im(a?ge?)s?")  # an image's numbers
IMAGES = re.compile(r"(?i)im(a?ge?)s?|pic|photo|jpe?g|png|webp|bmp|encoded|frame|pixel|video|thumb")  # adopted fields
DEPTH = re.compile(r"(?i)depth|dispar")
MASKS = r"mask|label|annotation|annot|target|gt|ground[ _-]?truth|seg|segmentation(class|object)?"
MASK_NAME = re.compile(rf"(?i)(^|(?<!with)(?<!without)[ _*/-]|train|val|test)({MASKS})(s|ids)?\d*([*/]|$)")
"""Masks, in a pattern of files."""
MASK_FIELD = re.compile(rf"(?i)(?<![a-z])({MASKS}|instance|trimap)s?(?![a-z])")  # masks, in a field of adopted records
MASK_COLUMN = re.compile(r"(?i)(\w*_)?(mask|seg(mentation)?)s?([._]?(path|file(_?name)?|name|image|img|png|tif|url))?")
MAYBE_MASK = re.compile(rf"{MASK_COLUMN.pattern}|(annotation|label|target|gt)s?|labels?_?map|ground_?truth")
"""Masks in a table; and images that are masks if their values are few."""
PARTS = rf"(image|img|input|rgb|depth|disparity|{MASKS})s?"
PART_FOLDER = re.compile(rf"(?i)(.*/)?((jpe?g|png|raw|train(ing)?|val(id(ation)?)?|test)?[ _-]?{PARTS}|train[ab])")
PART_FILE = re.compile(rf"(?i)[ _-]{PARTS}$")  # folders, and ends of file names, for parts of a row
SPLIT_NAME = re.compile(rf"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])")
SPLIT_WORD = re.compile(r"(?i)(?<![a-z])(training|train|validation|valid|val|test)(?=[^a-z]*[a-z])")
CLASS_NAMES = re.compile(
    r"(?i).*(class|label|categor|names|synset|mapping).*\.(txt|json)|.+\.names|.*(classes|class_?dict|colou?r).*\.(csv|txt)"
)  # files of class names
NUMBERED = re.compile(r"(\d+)[\s,:=]++(.*\S)")  # a line with a code and its name
CODED = re.compile(r"-?[0-9]{1,9}")
MAP_ITEM = re.compile(r"\bitem\s*+\{([^{}]*+)\}")
MAP_FIELD = re.compile(r"""\b(\w++)\s*+:\s*+("[^"]*+"|'[^']*+'|\d++)""")
"""A class in TensorFlow's `label_map.pbtxt`, and a field of it."""
ENDINGS = {
    "csv": ".csv", "tsv": ".tsv .tab", "jsonl": ".jsonl .ndjson", "parquet": ".parquet .pq", "webdataset": ".tar .tgz",
    "tfrecord": ".tfrecord .tfrecords .tfrec .record .records", "text": ".txt .text", "json": ".json",
    "conll": ".conll .iob .iob2 .bio", "conllu": ".conllu",
}  # fmt: skip
FORMATS = {ending: form for form, endings in ENDINGS.items() for ending in endings.split()}
"""A file's format by ending: a source's, or `json`."""
Item = TypeVar("Item")


def plain_name(name: str) -> str:
    """Returns the last part of a name: `label` of `image/class/label`, `json.label` and `objects.label`."""
    return re.split(r"[./]", name)[-1]


def is_label(name: str) -> bool:
    """Whether a column is named as a label."""
    return plain_name(name).lower() in LABELS


def is_id(name: str) -> bool:
    """Whether a column is named as an identifier and not as a label."""
    return bool(ID.fullmatch(plain_name(name))) and not is_label(name)


def split_of(*names: str) -> str | None:
    """Returns the first split among first and last words of file or folder names, else the only one in a name."""
    every = (re.findall("[a-z]+", name.partition(".")[0].lower()) for name in names)
    ends = (SPLITS.get(word) for words in every for word in words[:1] + words[-1:])
    return next(filter(None, chain(ends, map(only_split_of, names))), None)


def only_split_of(name: str) -> str | None:
    """Returns the only split among a name's words: `flowers-train.tfrecord-00000-of-00008` says train."""
    splits = {SPLITS[word] for word in re.findall(r"[^\W\d_]+", name.lower()) if word in SPLITS}
    return splits.pop() if len(splits) == 1 else None


def are_divided(splits: Iterable[str | None]) -> bool:
    """Whether these splits, None for items without one, divide the data: train and another."""
    named = {*splits} - {None}
    return "train" in named and len(named) > 1


def divided(items: Iterable[Item], names: Callable[[Item], Iterable[str]]) -> dict[str | None, list[Item]]:
    """Groups items by the split in their names, those without last; all are so unless train and another appear."""
    every = list(items)
    found = by_key(every, lambda item: split_of(*names(item)))
    if not are_divided(found):
        return {None: every}
    return {split: found[split] for split in (*SYNONYMS, None) if split in found}


def by_split(items: Iterable[Item], names: Callable[[Item], Iterable[str]]) -> dict[str | None, list[Item]]:
    """Groups items by split, without those of none unless all are."""
    groups = divided(items, names)
    return {split: group for split, group in groups.items() if split or len(groups) == 1}


def read_names(text: str, *, is_json: bool, is_csv: bool = False) -> dict[int, str] | list[str]:
    r"""Reads class names, by code or in order. Raises: ValueError: anything else.

    >>> read_names("World\nSports\n", is_json=False), read_names('{"Sports": 2}', is_json=True)
    (['World', 'Sports'], {2: 'Sports'})
    """
    if (values := text.count("\n") + text.count(",")) > NAMES.most:
        raise ValueError(NAMES.beyond(values))
    content = json.loads(text) if is_json else [line.strip() for line in text.splitlines() if line.strip()]
    content = content[1:] if is_csv and not NUMBERED.fullmatch("".join(content[:1])) else content  # without a header
    if not is_json and all(map(NUMBERED.fullmatch, content)):
        content = dict(re.split(r"[\s,:=]+", line, maxsplit=1) for line in content)
    if isinstance(content, dict):
        pairs = [pair if pair[0].isdecimal() else pair[::-1] for pair in content.items()]
        if len({str(code) for code, _ in pairs if CODED.fullmatch(str(code))}) < len(pairs):
            raise ValueError("no codes, or one twice")
        content = {int(code): name for code, name in pairs}
    names = list(content.values()) if isinstance(content, dict) else None if is_csv else content
    if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError("no names")
    if len(set(names)) < len(names):
        raise ValueError("a name twice")
    return content


def read_colors(text: str) -> dict[tuple[int, ...], str]:
    r"""Reads the names of colours, a class a line or an item of JSON; empty for other text.

    >>> read_colors("name,r,g,b\nroad,128,0,0\n"), read_colors("64 0 1\ttree\n")
    ({(128, 0, 0): 'road'}, {(64, 0, 1): 'tree'})
    """
    colors = dict[tuple[int, ...], str]()
    for line in re.split(r"[\n\]]", text):
        cells = [cell for cell in re.split(r"""[\s,;:"'\[{}]""", line) if cell]
        places = [place for place, cell in enumerate(cells) if re.fullmatch("[0-9]{1,3}", cell)]
        rgb = tuple(int(cells[place]) for place in places[-3:])
        are_joined = len(places) in (3, 4) and places[-1] - places[-3] == 2  # unlike codes between names
        if are_joined and max(rgb) < 256 and len(cells) > len(places):
            colors[rgb] = " ".join(cell for cell in cells if not cell.isdecimal())
    return colors


def by_code(codes: set[int], names: dict[int, str] | list[str], *, is_sure: bool) -> dict[int, str] | None:
    """Returns names by code; a list counts from 0 or 1 if only one fits. Unless sure, each name needs its code."""
    if isinstance(names, list):
        starts = [start for start in (0, 1) if start <= min(codes) and max(codes) < start + len(names)]
        names = dict(enumerate(names, starts[0])) if len(starts) == 1 else {}
    return dict(sorted(names.items())) if codes <= names.keys() and (is_sure or len(codes) == len(names)) else None


def read_label_map(text: str) -> dict[int, str]:
    """Reads `label_map.pbtxt` (Object Detection API): names by id. Raises: ValueError: no class, or an id twice."""
    names = dict[int, str]()
    for item in MAP_ITEM.findall(text):
        given = dict(MAP_FIELD.findall(item))
        name = str(given.get("display_name") or given.get("name") or "")[1:-1]
        if not given.get("id", "").isdecimal() or not name or int(given["id"]) in names:
            raise ValueError("an item without an id and a name, or an id twice")
        names[int(given["id"])] = name
    if not names:
        raise ValueError("no items")
    return names
