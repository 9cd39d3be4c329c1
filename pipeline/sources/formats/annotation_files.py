"""A file of annotations an image: Pascal VOC's XML, and YOLO's text, parsed to the lists of a row.

>>> yolo_lists(b"0 0.5 0.5 0.25 0.5", {"0": "cat"})
{'boxes': [0.5, 0.5, 0.25, 0.5], 'categories': ['cat']}
"""

from collections.abc import Callable, Sequence
from xml.etree import ElementTree

from recordmill.pipeline.sources.faults import Fault
from recordmill.pipeline.sources.formats.annotated_rows import Lists, Names, class_name

VOC_BOX = ("xmin", "ymin", "xmax", "ymax")
VOC_FLAGS = ("difficult", "truncated")
VOC_LISTS = ("boxes", "categories", *VOC_FLAGS)
YOLO_LISTS = ("boxes", "categories")
SLACK = 0.01  # of an image's side: numbers are rounded


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Refuses a document type, whose entities may expand without end."""

    def doctype(self, *_: object) -> None:
        raise ElementTree.ParseError("it holds a document type")


def voc_lists(data: bytes | None, names: Names) -> Lists | Fault:
    """Parses the XML of one image, empty lists without one; the parts of an object are no objects."""
    if data is None:
        return _columns(VOC_LISTS, ())
    try:
        root = ElementTree.fromstring(data, ElementTree.XMLParser(target=_WithoutDoctype()))  # noqa: S314
    except ElementTree.ParseError as error:
        return Fault("malformed_row", f"the annotation is no XML that is read: {error}")
    objects = [_voc_object(number, each) for number, each in enumerate(root.findall("object"), 1)]
    fault = next((each for each in objects if isinstance(each, Fault)), None)
    if root.tag != "annotation" or fault:
        return fault or Fault("malformed_row", "the XML's outer element is no `annotation`")
    return _columns(VOC_LISTS, [each for each in objects if not isinstance(each, Fault)])


def _voc_object(number: int, element: ElementTree.Element) -> tuple[object, ...] | Fault:
    try:
        box = [float(element.findtext(f"bndbox/{side}", "")) for side in VOC_BOX]
        flags = [int(element.findtext(flag) or 0) for flag in VOC_FLAGS]
    except ValueError:
        return Fault("malformed_row", f"object {number}: wanted four numbers in `bndbox`, and flags of 0 or 1")
    name = element.findtext("name", "").strip()
    return (box, name, *flags) if name else Fault("malformed_row", f"object {number} has no `name`")


def yolo_lists(data: bytes | None, names: Names) -> Lists | Fault:
    """Parses the text of one image, if any: a class and a box a line; polygons and key points are not read."""
    objects = list[tuple[object, ...]]()
    for number, line in enumerate((data or b"").splitlines(), 1):
        each = _yolo_object(line.split(), names) if line.strip() else None
        if isinstance(each, str):
            return Fault("malformed_row", f"the annotation's line {number}: {each}")
        objects += [each] if each else []
    return _columns(YOLO_LISTS, objects)


def _yolo_object(cells: Sequence[bytes], names: Names) -> tuple[object, ...] | str:
    """Reads a line, or says what is wrong with it."""
    try:
        code, *box = map(float, cells)
    except ValueError:
        return "wanted numbers alone"
    if len(box) != 4:
        return f"wanted a class and four numbers, found {len(cells)}: polygons and key points are not read"
    if not all(-SLACK <= side <= 1 + SLACK for side in box):
        return "a box has a number that is not 0 to 1 of the image's side"
    name = class_name(str(int(code)), names) if code.is_integer() else None
    return (box, name) if name else f"class {code:g} is not in `names`"


def _columns(names: Sequence[str], objects: Sequence[tuple[object, ...]]) -> Lists:
    lists = {name: [each[column] for each in objects] for column, name in enumerate(names)}
    return lists | {"boxes": [side for box in lists["boxes"] for side in box]}  # type: ignore[attr-defined]


FILE_LISTS = {"voc": VOC_LISTS, "yolo": YOLO_LISTS}
PARSERS: dict[str, Callable[[bytes | None, Names], Lists | Fault]] = {"voc": voc_lists, "yolo": yolo_lists}
