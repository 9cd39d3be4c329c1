"""The table's datasets: inputs and specs written from the cases, and each dataset built once when first needed."""

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

import recordmill
from recordmill import Dataset, Published
from recordmill.pipeline.spec.model import Spec
from tests.table import images, texts, values
from tests.table.case import ABSENT, ROWS, SPLITS, Case, File

CASES: Mapping[str, Case] = {**values.CASES, **texts.CASES, **images.CASES}
"""By the feature's name: the kind's and the option, or a keyword of Python, which serving names otherwise."""
SPECS: Mapping[str, Mapping[str, Any]] = {"main": {}, **values.SPECS, **texts.SPECS, **images.SPECS}
"""The options of each dataset beside its features."""
SPEC = """
source: {format: jsonl, path: rows.jsonl}
key: id
split_by: {column: split}
shards: {train: 2}
rejects: {max_share: 0}
duplicates: keep
gate: false
"""


class Table:
    """One dataset of the table: its folder holds rows, files, `dataset.yaml`, and what is built of them in `out`."""

    def __init__(self, folder: Path, cases: Mapping[str, Case], **spec: Any) -> None:
        """Writes the rows and the spec; `spec` holds further options, or other ones."""
        self.folder, self.cases, self.label = folder, cases, spec.get("label")
        folder.mkdir(parents=True)
        features = {name: case.feature for name, case in cases.items()}
        self.text = yaml.safe_dump(
            {"name": "table", **yaml.safe_load(SPEC), **spec, "features": features}, allow_unicode=True, sort_keys=False
        )
        (folder / "dataset.yaml").write_text(self.text, encoding="utf-8")
        files: dict[str, bytes] = {}
        for path, content in (each for case in cases.values() for each in case.files.items()):
            assert files.setdefault(path, content) == content, f"two cases give the file {path}"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        write_rows(folder / "rows.jsonl", cases)

    def spec(self) -> Spec:
        """Returns the spec, with paths in the folder."""
        return recordmill.load_spec(self.folder / "dataset.yaml")

    @cached_property
    def published(self) -> Published:
        """What a build in this process publishes."""
        return recordmill.build(self.spec(), str(self.folder / "out"))

    @property
    def dataset(self) -> Dataset:
        """The version, opened anew."""
        return recordmill.open_dataset(self.published.folder)


def write_rows(path: Path, cases: Mapping[str, Case], rows: Sequence[int] = range(len(ROWS))) -> None:
    """Writes rows of all cases as JSON Lines, and their files beside."""
    lines = []
    for row in rows:
        values: dict[str, Any] = {"id": ROWS[row], "split": split_of(row)}
        for name, case in cases.items():
            columns = dict(case.columns) if not case.raw else {name: case.raw, **case.columns}
            for column, given in columns.items():
                if given[row] is not ABSENT:
                    cell = _cell(path.parent, f"{column}-{row}", given[row])
                    assert values.setdefault(column, cell) == cell, f"two cases give the column {column}"
        lines.append(json.dumps(values, ensure_ascii=row % 2 == 0) + "\n")
    path.write_text("".join(lines), encoding="utf-8")


def _cell(folder: Path, name: str, value: Any) -> Any:
    """Returns a raw value as JSON has it; files are written."""
    if isinstance(value, File):
        (folder / "files").mkdir(exist_ok=True)
        (folder / f"files/{name}{value.suffix}").write_bytes(value.content)
        return f"files/{name}{value.suffix}"
    if isinstance(value, list):
        return [_cell(folder, f"{name}-{place}", each) for place, each in enumerate(value)]
    return value


def split_of(row: int) -> str:
    """Returns the split of a row's number."""
    return next(split for split, rows in SPLITS.items() if row in range(len(ROWS))[rows])
