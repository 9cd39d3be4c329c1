"""Finds images, labels, boxes and values in adopted records, by their facts and by the files beside them."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recordmill.pipeline.adopt.features import IMAGE, READ, Held, Read, Wanted
from recordmill.pipeline.adopt.files import AdoptError, Said, names_of, said_of, unread
from recordmill.pipeline.adopt.scanned import BYTES, EMPTY, FLOATS, INTS, NESTED, NO_EXAMPLE, FeatureFacts, Layout
from recordmill.pipeline.dataset.paths import check_name
from recordmill.pipeline.errors import listed
from recordmill.pipeline.safe_text import count, cut
from recordmill.pipeline.sources import naming
from recordmill.pipeline.sources.naming import LABELS, by_code
from recordmill.transforms.base.arrays import DTYPES
from recordmill.transforms.base.stored import IMAGES
from recordmill.transforms.images.image_facts import loss_lines
from recordmill.transforms.images.image_header import NAMED
from recordmill.transforms.values.values_stored import CategoryDescription

OUR_NAMES = {
    "image/encoded": "image", "image/class/label": "label", "image/class/text": "label_text",
    "image/object/class/label": "boxes_label", "image/object/class/text": "boxes_text", "key": "key_",
}  # fmt: skip
"""Shorter names for features of the Object Detection API and of TensorFlow's image models; `key` is reserved."""
CORNERS = ("ymin", "xmin", "ymax", "xmax")
Layouts = Sequence[tuple[Layout, int]]  # each with its number of records
RAGGED = "/ragged_flat_values"
ROW_LENGTHS = re.compile(r"(.+)/ragged_row_lengths_(\d+)")
"""Names in lists of lists of TensorFlow Datasets: the values, and the length of each list."""
PARTS = ("length", "missing", "shape", "mask")  # suffixes of arrays that a batch adds to a feature's
STATED = "stated"  # what a user says, in place of `features.json`
FORMS: Mapping[str, Any] = {BYTES: str, INTS: int, FLOATS: (int, float)}  # of defaults
MOST_NAME = 1_000
MOST_CLASSES = 10_000
MOST_RELATIVE = 1.001  # of a side of a box: rounding may exceed 1


@dataclass
class Guessed:
    """The features, as records are read."""

    read: dict[str, Read] = field(default_factory=dict)
    label: str | None = None
    kinds: dict[str, frozenset[str]] = field(default_factory=dict)
    """The accepted kinds of values, by the records' features."""
    notes: list[str] = field(default_factory=list)
    target: str | None = None  # the records' feature that none may lack

    def reject(self, layout: Layout, key: str | None) -> tuple[str, str, str | None] | None:
        """Returns why records of a layout are left out: reason, message and feature; None if they are read."""
        if layout.get("") == NO_EXAMPLE:
            return "malformed_row", "the record is not a tf.train.Example, or has no features", None
        if key is not None and layout.get(key) not in (INTS, BYTES):
            return "missing_key", f"the record lacks its key '{cut(key)}'", key
        if self.target is not None and layout.get(self.target, EMPTY) == EMPTY:
            return "missing_value", f"the record lacks its label '{cut(self.target)}'", self.target
        odd = next((name for name, kind in layout.items() if kind not in {EMPTY, *self.kinds.get(name, {kind})}), None)
        if odd is None:
            return None
        return "wrong_type", f"wanted {' or '.join(sorted(self.kinds[odd]))}, found {layout[odd]}", odd


class Guesser:
    """Guesses what records hold."""

    def __init__(
        self, facts: Mapping[str, FeatureFacts], layouts: Layouts, beside: Mapping[str, bytes], key: str | None = None
    ) -> None:
        """Takes each feature's figures, the layouts with their records, and the files beside the data by name."""
        self.guessed = Guessed()
        self.said = dict[str, Said]()
        for name, said in said_of(beside).items():
            self.said |= {name: said, f"{name}{RAGGED}": said, f"{name}/value": said}
        self._names = names_of(beside)
        self.held = {each.name: each for each in self._held(facts, layouts, key)}
        self._left = dict(self.held)
        self._taken = {f"{owner}_{part}" for owner in self.held for part in PARTS}
        empty = {name for layout, _ in layouts for name, kind in layout.items() if kind == EMPTY}
        for name in sorted(empty | said_of(beside).keys()):
            if not any(each == name or each.startswith(f"{name}/") for each in self.guessed.kinds):
                self._leave_out(name, "no record holds a value")
        for name in unread(beside):
            self._leave_out(name, "it is broken, or has a name or an id twice")

    def _held(self, facts: Mapping[str, FeatureFacts], layouts: Layouts, key: str | None) -> Iterator[Held]:
        """Yields the features, each with the kind of most of its records."""
        kinds = dict[str, Counter[str]]()
        for layout, records in layouts:
            for name, kind in layout.items():
                if kind not in (NO_EXAMPLE, EMPTY):
                    kinds.setdefault(name, Counter())[IMAGE if kind in READ else kind] += records
        plain = {each for each in kinds if each.encode("utf-8", "ignore").decode() == each}
        for name in [each for each in kinds if not 0 < len(each) <= MOST_NAME or each not in plain]:
            del kinds[name]
            self._leave_out(ascii(name), f"its name is empty, not UTF-8, or longer than {MOST_NAME:,} characters")
        chosen = {name: max(sorted(counts), key=counts.__getitem__) for name, counts in sorted(kinds.items())}
        chosen = {name: BYTES if kind in NAMED else kind for name, kind in chosen.items()}
        for name, kind in chosen.items():
            self.guessed.kinds[name] = {IMAGE: READ, BYTES: frozenset({BYTES, *NAMED})}.get(kind, frozenset({kind}))
        read = [(layout, records) for layout, records in layouts if not self.guessed.reject(layout, key)]
        total = sum(records for _, records in read)
        for name, kind in chosen.items():
            if kind == NESTED:
                self._leave_out(name, "its steps hold several values: a list of lists, which is not read")
            elif present := sum(records for layout, records in read if layout.get(name, EMPTY) != EMPTY):
                type_ = kind if kind in (INTS, FLOATS) else BYTES
                yield Held(name, kind, facts[f"{type_} {name}"], total - present)

    def keep(self, columns: Collection[str]) -> None:
        """Keeps some of the records' features."""
        self._left = {name: held for name, held in self._left.items() if name in columns}

    def guess(self, label: str | None = None) -> Guessed:
        """Guesses all features; `label` names the feature to predict, by default a category with a label's name."""
        self.guessed.label = label
        for name in sorted(self._left, key=lambda each: (_is_mask(each), self._left[each].pixel or "")):
            self._image(name, self._left[name])
        # The bytes of raw pixels, by the names of an image, its height and its width.
        sides = {name.rpartition("/")[2].lower(): held.facts for name, held in self._left.items() if held.kind == INTS}
        given = [sides.get("height"), sides.get("width"), sides.get("depth") or sides.get("channels")]
        for name, held in list(self._left.items()):
            is_alone = held.kind == BYTES and held.facts.most == 1 and not held.lacking
            if given[0] is None or given[1] is None or not is_alone or not naming.IMAGES.search(name):
                continue
            size, known = held.facts.low, [each for each in given if each is not None]
            if any(each.low != each.high for each in known) or size != held.facts.high or not size:
                continue
            height, width, *channels = (int(each.high or 0) for each in known)
            depth = channels[0] if channels else int(size) // max(1, height * width)
            if depth in (1, 3) and height * width * depth == size:
                our = self.name_for("image" if "image" in name.lower() else name)
                self.add(our, {"kind": IMAGE, "column": name, "shape": [height, width, depth]})
        self._boxes()
        for name in list(self._left):
            self._other(name)
        ordered = sorted(self.guessed.read.items(), key=lambda each: ("image" in each[1].spec, each[0]))
        read = self.guessed.read = dict(ordered)
        categories = [name for name in read if isinstance(read[name].description, CategoryDescription)]
        named = [name for usual in LABELS for name in categories if name.lower() == usual]
        self.guessed.label = label or next(iter(named or categories * (len(categories) == 1)), None)
        return self.guessed

    def present(self, column: str, default: Any = None) -> Held:
        """Takes a feature as one that no record lacks: others get a default, or are left out. Raises: AdoptError."""
        held, form = self.held[column], FORMS[self.held[column].stored]
        is_nan = isinstance(default, float) and math.isnan(default)  # stands for a missing number already
        if not held.lacking or is_nan or (default is None and held.facts.most > 1):  # a list may be empty
            return held
        values = [] if default is None else np.asarray(default).reshape(-1).tolist()
        texts = tuple(each.decode("utf-8", "surrogateescape") if isinstance(each, bytes) else each for each in values)
        fits = all(isinstance(each, form) and (form is str or math.isfinite(each)) for each in texts)
        if default is None:
            self.guessed.target = column
        elif len(texts) != held.facts.most or not fits:
            wanted = f"give {held.facts.most} of {held.stored}"
            raise AdoptError(f"'{cut(column)}' has the default {cut(repr(default))}: {wanted}")
        else:
            self._note(column, f"missing in {count(held.lacking, 'record')}, which get {cut(repr(default))}")
        self.held[column] = self._left[column] = replace(held, lacking=0, default=texts)
        return self.held[column]

    def _first_image(self) -> str | None:
        images = [name for name, read in self.guessed.read.items() if read.spec["kind"] == IMAGE]
        return IMAGE if IMAGE in images else next(iter(images), None)

    def add(self, name: str, words: Mapping[str, Any]) -> None:
        """Adds a feature under our name, by a spec's words, and says what its values lose. Raises: AdoptError."""
        known, label = self.guessed.read.keys(), self.guessed.label
        self.guessed.read[name] = read = Wanted(name, words, self.held, known, self.present, label).read()
        self._taken |= {name, *(f"{name}_{part}" for part in PARTS)}
        for column in read.columns:
            self._left.pop(column, None)
            held = self.held[column]
            if read.spec["kind"] in IMAGES and held.kind == IMAGE:
                self._note(name, *loss_lines(held.facts.losses))
                if turned := held.facts.turned:
                    self._note(name, f"{count(turned, 'image')} turned by EXIF, read as stored, as TensorFlow does")
                if bad := held.facts.unreadable:
                    self._note(name, f"{count(bad, 'image')} without a readable header, left out by on_error='skip'")
            if held.lacking and "optional" in read.spec:
                self._note(name, f"missing in {count(held.lacking, 'record')}: optional, `{name}_missing` is 1 there")

    def _note(self, name: str, *lines: str) -> None:
        self.guessed.notes += [f"{name}: {line}" for line in lines]

    def _leave_out(self, name: str, why: str) -> None:
        self._note(cut(name), f"left out: {why}")

    def name_for(self, column: str) -> str:
        """Returns our name for a feature of the records."""
        plain = column.removesuffix(RAGGED)
        if ragged := ROW_LENGTHS.fullmatch(column):
            plain = f"{ragged[1]}_row_lengths_{ragged[2]}"
        name = OUR_NAMES.get(plain) or re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")[:90]
        name = name if name[:1].isalpha() else f"feature_{name}"
        while name in self._taken:
            name += "_"
        return check_name("feature", name)

    def _image(self, name: str, held: Held) -> None:
        """Finds images and masks by their names, or by what is said of them."""
        said, facts, our = self.said.get(name), held.facts, self.name_for(name)
        if held.kind != IMAGE or (said is not None and said.kind not in (IMAGE, "video", STATED)):
            return None
        if said is None and not _is_mask(name) and not naming.IMAGES.search(name):
            unnamed = "images, though its name does not say so, are given as bytes"
            return self._note(our, f"{unnamed}: state `kind: image`, or `kind: mask`")
        channels, is_list = said.sides[2] if said and said.sides else None, facts.most > 1 or bool(said and said.shape)
        of = self._first_image() if _is_mask(name) and held.pixel else None
        odd = said.dtype if said and said.dtype not in ("", "uint8") and not of else ""
        if not odd and not of and facts.losses.get("16 bits", 0) == sum(facts.formats.values()):
            odd = "16 bits"
        if odd or channels not in (None, 1, 3):
            what = odd if channels in (None, 1, 3) else f"{channels} channels"
            return self._note(our, f"images of {what} are given as bytes, not decoded")
        if is_list and (of or facts.sides[::2] != facts.sides[1::2]):
            return self._note(our, "several masks, or images of varying sizes, are given as bytes, not decoded")
        if of:
            self._note(our, f"a mask of '{of}', padded with 0: state `kind: mask` with `ignore`, or `kind: image`")
            return self.add(our, {"kind": "mask", "column": name, "image": of})
        return self.add(our, {"kind": "image_sequence" if is_list else IMAGE, "column": name})

    def _boxes(self) -> None:
        image, groups = self._first_image(), dict[str, dict[str, Held]]()
        for name, held in self._left.items():
            folder, corner = name[: -len(CORNERS[0])], name[-len(CORNERS[0]) :].lower()
            said = self.said.get(name)
            if corner in CORNERS and held.kind in (FLOATS, INTS):
                groups.setdefault(folder, {})[corner] = held
            elif held.kind == FLOATS and said and said.kind == "boundingBox" and image and _is_relative(held):
                self.add(self.name_for(name), {"kind": "boxes", "column": name, "image": image})
                return self._boxes()
        for folder, group in groups.items():
            if group.keys() != {*CORNERS}:
                continue
            columns = [group[corner] for corner in CORNERS]
            if len({each.facts.lengths for each in columns}) > 1:
                self._note(cut(folder), "its four lists differ in length in some records: they are no boxes")
            elif image is None or not all(map(_is_relative, columns)):
                why = "the records have no image" if image is None else "they are not relative, 0 to 1"
                self._note(cut(folder), f"boxes given as four lists, since {why}, which do not move with an image")
            else:
                names = [each.name for each in columns]
                self.add(self.name_for("boxes"), {"kind": "boxes", "columns": names, "image": image})
        return None

    def _other(self, name: str) -> None:
        said, our = self.said.get(name), self.name_for(name)
        held = self.present(name) if our == self.guessed.label else self._left[name]
        facts, shape = held.facts, said.shape if said is not None else None
        many = facts.most > 1 or bool(ROW_LENGTHS.fullmatch(name))
        if shape is not None:
            many = None in shape or name.endswith(RAGGED)
        words, sides = self._words(name, held, said), tuple(side or 0 for side in shape or ())
        if held.kind == BYTES and facts.formats and facts.values == sum(facts.formats.values()):
            self._note(our, f"images in {listed(facts.formats)} are given as bytes, not decoded")
        if said is not None and said.kind == "tensor" and said.encoding != "none" and held.stored == BYTES:
            why = ""
            if said.encoding == "bytes" and said.dtype in DTYPES and shape and None not in shape[1:]:
                try:
                    return self.add(our, {"kind": "array", "column": name, "dtype": said.dtype, "shape": shape})
                except AdoptError as error:  # of other sizes than said
                    why = f": {error}"
            self._note(our, f"a tensor of {said.dtype} encoded as {said.encoding} is given as bytes, not decoded{why}")
            return self.add(our, {"kind": "raw", "column": name, "many": facts.most > 1})
        if words is not None and (many or not held.lacking):
            kind = "categories" if many or facts.most > 1 else "category"
            return self.add(our, {"kind": kind, "column": name, "classes": words})
        if shape and not many and held.length == math.prod(sides):
            return self.add(our, {"kind": "raw", "column": name, "shape": sides})
        many |= facts.most > 1
        if said is not None and said.dtype == "uint64" and (facts.low or 0) < 0:
            self._note(our, "numbers beyond int64 are given as negative ones, as TensorFlow Datasets stored them")
        if shape and shape != (None,):
            self._note(our, f"arrays of the shape {list(shape)} are given as one list")
        length = held.length if shape is None and many else None
        return self.add(our, {"kind": "raw", "column": name, "many": many, "length": length})

    def _words(self, name: str, held: Held, said: Said | None) -> list[str] | None:
        """Returns the names of a label's ids, numbers for those without; None for other features."""
        facts, last = held.facts, name.rpartition("/")[2].lower()
        if held.kind != INTS or held.default or facts.low is None or facts.high is None:
            return None
        if not 0 <= facts.low <= facts.high < MOST_CLASSES:
            return None
        names = said.names if said is not None and said.kind == "classLabel" else None
        if names is None and last in LABELS:
            names = self._names
        if names is None:
            is_one = facts.most == 1 and facts.counts is not None and (said is None or said.kind == STATED)
            return list(map(str, range(int(facts.high) + 1))) if is_one and last in LABELS else None
        high, our = int(facts.high), self.name_for(name)
        ids = {int(value) for values in (facts.counts or {}).values() for value in values}
        ids = ids or {int(facts.low), high}
        if isinstance(names, dict):
            known = {id_: word for id_, word in names.items() if id_ < MOST_CLASSES}
            by_id = known if ids & names.keys() else None
        else:
            by_id = dict(enumerate(names)) if name in self.said else by_code(ids, names, is_sure=True)
        if by_id is None:
            self._note(our, f"its ids, {facts.low} to {high}, do not fit the {len(names)} names beside the files")
            by_id = {}
        elif nameless := sorted(ids - by_id.keys()):
            self._note(our, f"ids without a name keep their number: {listed(list(map(str, nameless)))}")
        size = max([high, *by_id]) + 1
        words = [by_id.get(id_) or str(id_) for id_ in range(size)]
        times = Counter(words)
        return [word if times[word] == 1 else f"{word} ({id_})" for id_, word in enumerate(words)]


def _is_mask(name: str) -> bool:
    return bool(naming.MASK_FIELD.search(name))


def _is_relative(held: Held) -> bool:
    low, high = held.facts.low, held.facts.high
    return held.kind == FLOATS and (low is None or high is None or 1 - MOST_RELATIVE <= low <= high <= MOST_RELATIVE)
