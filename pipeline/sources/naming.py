"""Usual names of columns, fields, files and folders: words for splits, labels, keys, texts, images and masks.

>>> divided(["train/a.txt", "val2017/b.txt"], lambda path: path.split("/"))
{'train': ['train/a.txt'], 'validation': ['val2017/b.txt']}
>>> plain_name("image/class/label"), is_label("objects.label"), is_id("image_id"), bool(MASK_NAME.search("masks/*"))
('label', True, True, True)
"""

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import TypeVar

from recordmill.pipeline.dataset.placement import SPLITS, SYNONYMS

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
MASK_COLUMN = re.compile(r"(?i)(\w*_)?(mask|seg|segmentation)s?(_?(path|file(_?name)?|name|image|img|png|url))?")
MAYBE_MASK = re.compile(rf"{MASK_COLUMN.pattern}|(annotation|label|target|gt)s?|labels?_?map|ground_?truth")
"""Masks in a table; and images that are masks if their values are few."""
PARTS = rf"(image|img|input|rgb|depth|disparity|{MASKS})s?"
PART_FOLDER = re.compile(rf"(?i)(.*/)?((jpe?g|png|raw|train(ing)?|val(id(ation)?)?|test)?[ _-]?{PARTS}|train[ab])")
PART_FILE = re.compile(rf"(?i)[ _-]{PARTS}$")  # folders, and ends of file names, for parts of a row
SPLIT_NAME = re.compile(rf"(?<![a-z])({'|'.join(SPLITS)})(?![a-z])")
SPLIT_WORD = re.compile(r"(?i)(?<![a-z])(training|train|validation|valid|val|test)(?=[^a-z]*[a-z])")
FIRST_OR_LAST = re.compile("^[a-z]+|[a-z]+$")
CLASS_NAMES = re.compile(
    r"(?i).*(class|label|categor|names|synset|mapping).*\.(txt|json)|.+\.names|.*(classes|class_?dict|colou?r).*\.(csv|txt)"
)  # files of class names
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
    """Returns the first split that a file or folder name begins or ends with: `train2017`, `val`, `mnist_train`."""
    words = chain.from_iterable(FIRST_OR_LAST.findall(name.partition(".")[0].lower()) for name in names)
    return next(filter(None, map(SPLITS.get, words)), None)


def only_split_of(name: str) -> str | None:
    """Returns the only split among a name's words: `flowers-train.tfrecord-00000-of-00008` says train."""
    splits = {SPLITS[word] for word in re.findall(r"[^\W\d_]+", name.lower()) if word in SPLITS}
    return splits.pop() if len(splits) == 1 else None


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
