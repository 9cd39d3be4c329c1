r"""The names of classes in files beside data.

>>> by_code({1, 2}, read_names("cat\ndog\n", is_json=False), is_sure=True)
{1: 'cat', 2: 'dog'}
"""

import json
import re

from recordmill.transforms.contract.bounds import NAMES

NUMBERED = re.compile(r"(\d+)[\s,:=]++(.*\S)")  # a line with a code and its name
CODED = re.compile(r"-?[0-9]{1,9}")
MAP_ITEM = re.compile(r"\bitem\s*+\{([^{}]*+)\}")
MAP_FIELD = re.compile(r"""\b(\w++)\s*+:\s*+("[^"]*+"|'[^']*+'|\d++)""")
"""A class in TensorFlow's `label_map.pbtxt`, and a field of it."""


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
    fits = codes <= names.keys() and (is_sure or len(codes) == len(names))
    return dict(sorted(names.items())) if fits else None


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
