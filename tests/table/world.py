"""The table's datasets: inputs and specs written from the cases, and each dataset built once when first needed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

import recordmill
from recordmill import Dataset, Published
from recordmill.pipeline.spec.model import Spec, parse_spec
from tests.table import images, texts, values
from tests.table.case import ABSENT, ROWS, SPLITS, Case, File, named

CASES: Mapping[str, Case] = {**values.CASES, **texts.CASES, **images.CASES}
"""By the feature's name, which begins with the kind's and says the option."""
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
        self.folder, self.cases = folder, cases
        folder.mkdir(parents=True)
        features = {name: case.feature for name, case in cases.items()}
        self.text = yaml.safe_dump(
            {"name": "table", **yaml.safe_load(SPEC), **spec, "features": features}, allow_unicode=True, sort_keys=False
        )
        (folder / "dataset.yaml").write_text(self.text, encoding="utf-8")
        for path, content in {path: each for case in cases.values() for path, each in case.files.items()}.items():
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
                    values[column] = _cell(path.parent, f"{column}-{row}", given[row])
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
