"""A JSON file of one object is not a row: it is refused by name, or skipped beside files of rows."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.init.starter import starter
from recordmill.pipeline.sources.files import LocalFiles
from tests.messages import assert_names, raises

TABLE = pd.DataFrame({"text": [f"hello {row}" for row in range(12)], "id": [f"00{row}" for row in range(12)]})
OF_PANDAS: dict[str, Callable[[Path], Any]] = {
    "columns": TABLE.to_json,
    "indented columns": lambda path: TABLE.to_json(path, indent=2),
    "columns of 2 MiB": lambda path: pd.concat([TABLE] * 10_000, ignore_index=True).to_json(path),
    "index": lambda path: TABLE.to_json(path, orient="index"),
    "split": lambda path: TABLE.to_json(path, orient="split"),
    "table": lambda path: TABLE.to_json(path, orient="table"),
    "columns of a part": TABLE.set_index(TABLE.index + 3).to_json,
    "columns by word": TABLE.set_index("r" + TABLE.index.astype(str)).to_json,
    "columns of lists": lambda path: path.write_text(json.dumps(TABLE.to_dict("list"))),
}


@pytest.mark.first(9)
@pytest.mark.parametrize("name", OF_PANDAS)
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_a_table_in_one_object_is_refused_with_the_command(tmp_path: Path, name: str, ending: str) -> None:
    (tmp_path / "data").mkdir()
    file = tmp_path / f"data/train{'.json' if 'lists' in name else ending}"
    OF_PANDAS[name](file)
    with raises(UserError, file.name, "one row") as raised:
        starter(str(tmp_path / "data"), LocalFiles())
    command = re.search(r"pandas\.read_json\(.*$", str(raised.value))
    assert command
    exec(f"import pandas; {command[0]}")
    [lines] = (tmp_path / "data").glob("*lines.jsonl")
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert [(row["text"], row["id"]) for row in rows[:12]] == list(TABLE.itertuples(index=False, name=None))


def test_columns_in_a_file_of_lines_are_refused(tmp_path: Path) -> None:
    TABLE.to_json(tmp_path / "train.jsonl")
    with raises(UserError, "one row", "orient='columns'"):
        starter(str(tmp_path / "train.jsonl"), LocalFiles())


@pytest.mark.parametrize(
    "content",
    ["{}", '{"a": 1, "b": {"x": 1}}', '{"text": "a", "n": {"x": 1}}', '{\n "text": "a"\n}\n', '{"paths": {"a": "b"}}'],
)
def test_any_other_object_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "train.json").write_text(content)
    with raises(UserError, "train.json", "one row"):
        starter(str(tmp_path / "train.json"), LocalFiles())


def of_hugging_face(folder: Path) -> None:
    folder.mkdir()
    (folder / "dataset_info.json").write_text('{"features": {"text": {"dtype": "string"}}}')
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}], "_fingerprint": "1"}')


def test_descriptions_of_hugging_face_are_no_data(tmp_path: Path) -> None:
    of_hugging_face(tmp_path / "data")
    with raises(UserError, "Hugging Face", "`Dataset.to_parquet`"):
        starter(str(tmp_path / "data"), LocalFiles())
    (tmp_path / "data/data.arrow").write_bytes(b"ARROW1\0\0")
    with raises(UserError, "data.arrow", "`Dataset.to_parquet`"):
        starter(str(tmp_path / "data"), LocalFiles())


def test_objects_that_share_no_key_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "hidden_size": 8}')
    (tmp_path / "vocab.json").write_text('{"the": 1, "a": 2}')
    with raises(UserError, "key", "config.json, vocab.json"):
        starter(str(tmp_path), LocalFiles())


def test_objects_beside_files_of_rows_are_left_out(tmp_path: Path) -> None:
    of_hugging_face(tmp_path / "data")
    for name in ("part-1", "part-2"):
        TABLE.to_json(tmp_path / f"data/{name}.json", orient="records", lines=True)
    (tmp_path / "data/labels.json").write_text('{"0": "cat", "1": "dog"}')
    text = starter(str(tmp_path / "data"), LocalFiles())
    assert yaml.safe_load(text)["source"]["path"].endswith("part-*.json")
    assert_names(text.replace("\n#   ", " "), ": 2 (dataset_info.json, state.json)", "The 24 rows")
