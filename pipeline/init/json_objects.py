"""Says what a file is that holds one JSON object, which would be one row.

>>> says_one_row(b'{"text": {"0": "a", "1": "b"}}', "a.json").partition(":")[0]
'a.json is one JSON object, and would be one row'
"""

import json
import posixpath
import re

from recordmill.pipeline.sources.formats.jsonl import lines_hint

ORIENTS = {
    "split": re.compile(rb'\{\s*+"columns"\s*+:\s*+\['),
    "table": re.compile(rb'\{\s*+"schema"\s*+:\s*+\{\s*+"fields"'),
    "index": re.compile(rb'\{\s*+"0"\s*+:\s*+\{'),
    "columns": re.compile(rb'\{\s*+"(?:[^"\\]|\\.)*+"\s*+:\s*+(?:\{\s*+"0"\s*+:|\[\s*+[^\s{])'),
}
"""The beginnings of what pandas' `to_json` writes, by its `orient`; lists are read as columns, too."""
MOST_BYTES = 1 << 20  # a file with more is cut off here
DESCRIPTIONS = {
    "state.json": b'"_data_files"', "dataset_info.json": b'"features"', "dataset_infos.json": b'"features"',
    "dataset_dict.json": b'"splits"',
}  # fmt: skip
"""The names of Hugging Face's descriptions of datasets, and what they hold."""


def keys_of_object(head: bytes) -> set[str] | None:
    """The keys of a file that is one JSON object, by its first bytes; None of any other, none where it is cut off."""
    text = head.decode("utf-8", "replace").strip()
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return set() if len(head) >= MOST_BYTES and text.startswith("{") else None
    return set(value) if isinstance(value, dict) and end == len(text) else None


def says_one_row(head: bytes, path: str) -> str:
    """Says that a file is one object, and how to make lines of its rows; nothing of any other."""
    if keys_of_object(head) is None:
        return ""
    hint = lines_hint([head.strip()], path)
    for orient, start in ORIENTS.items():
        if start.match(head.strip()):
            read = f"pandas.read_json({path!r}, orient={orient!r}, dtype=False, convert_dates=False)"
            lines = f"{posixpath.splitext(path)[0]}-lines.jsonl"
            hint = f". To make lines of a table: {read}.to_json({lines!r}, orient='records', lines=True)"
            break
    return f"{path} is one JSON object, and would be one row{hint}"
