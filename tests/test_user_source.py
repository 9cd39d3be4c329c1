"""A user's own function as a source, and the user's code on its way to other processes."""

import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from recordmill.pipeline.errors import UserError
from recordmill.pipeline.sources.faults import SourceError
from recordmill.pipeline.sources.formats import reader_of
from recordmill.pipeline.sources.formats import user_rows as user
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.options import UserRows
from recordmill.pipeline.sources.source_reader import SourceReader
from recordmill.pipeline.sources.user_code import UserCode, UserCodeError, load
from tests.constants import constants
from tests.messages import assert_names, raises
from tests.tables import CATEGORY, FILES, IMAGE, NUMBER, TEXT, read

ASKED = {"id": CATEGORY, "text": TEXT, "n": NUMBER}
READER = """
from pathlib import Path
import numpy as np
from words import word
from lib.deep import more as deep

def rows(count=3, part=0, fail=None, odd=None):
    row = {}
    for number in range(count):
        if number == fail:
            raise KeyError(number)
        row.update(id=f"{part}-{number}", text=word(number), n=np.float32(number / 2))
        yield odd if odd is not None and number == 1 else row

def parts(count=3):
    return list(range(count))

def pictures():
    yield {"image": b"\\xff", "tags": ("a", "b"), "meta": {"boxes": [{"x": 1}, {"x": 2}]}}
    yield {"image": Path("x/a.png"), "tags": [], "meta": {"boxes": []}}
    yield {"image": "../a.png", "tags": None}

def opened(folder, part=""):
    assert Path(folder).is_dir()
    yield {"text": folder, "id": part + Path("notes.txt").read_text()}

def opened_parts(folder):
    return sorted(path.name for path in Path(folder).iterdir())

def none(): return None
def ends(): raise SystemExit(3)
def empty(): return iter(())
def bad_parts(): return {1}
TABLE = 7
"""
FILES_OF_CODE = {
    "reader.py": READER,
    "words.py": "import lib\ndef word(number):\n    return f'text {number}'\n",
    "lib/__init__.py": "from .deep import more\n",
    "lib/deep/more.py": "X = 1\n",
    "unused.py": "raise SystemExit\n",
    "broken.py": "x = (\n",
    "fails.py": "import os\n\n1 / 0\n",
    "needs.py": "import not_there_at_all\n",
    "random.py": "def rows(): ...\n",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    for path, text in FILES_OF_CODE.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    modules, finders = set(sys.modules), list(sys.meta_path)
    UserCode.of(["reader:rows"], str(tmp_path)).install()
    yield tmp_path
    UserCode("", {}).install()
    sys.meta_path[:] = finders
    assert not {"reader", "words", "lib"} & (set(sys.modules) - modules)


def source(rows: str = "reader:rows", **options: Any) -> SourceReader[Any]:
    return reader_of(UserRows(format="python", rows=rows, **options))


@pytest.mark.parametrize("block_rows", [1, 4096])
def test_rows(block_rows: int) -> None:
    with constants(user, BLOCK_ROWS=block_rows):
        found = read(source(options={"count": 30}, count=29, inputs=["*.py"]), ASKED)
        assert found.rows == [{"id": f"0-{row}", "text": f"text {row}", "n": row / 2} for row in range(30)]
        assert len(set(found.keys)) == 30
        assert (found.plan.rows, found.plan.notes) == (29, [])


def test_parts_are_chunks() -> None:
    found = read(source(parts="reader:parts", options={"count": 2}), ASKED)
    assert [row["id"] for row in found.rows] == ["0-0", "0-1", "1-0", "1-1"]
    assert [chunk.file for chunk in found.plan.chunks] == ["reader:rows 0", "reader:rows 1"]
    assert source().locate(found.plan.chunks[1], 1) == ("reader:rows 1", 2)


def test_relative_paths_begin_in_the_specs_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holds for any working folder, in the plan and in concurrent threads of workers."""
    (folder / "notes.txt").write_text("notes")
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    asked = source("reader:opened", parts="reader:opened_parts", options={"folder": "lib"})
    parts = [path.name for path in sorted((folder / "lib").iterdir())]
    chunks = asked.plan(FILES, {"id": TEXT}, 1).chunks
    with ThreadPoolExecutor(4) as pool:
        blocks = pool.map(lambda chunk: next(iter(asked.read(chunk, FILES, {"id": TEXT}, ()))), chunks)
    assert [block.table["id"][0].as_py() for block in blocks] == [f"{part}notes" for part in parts]
    assert os.getcwd() == str(folder / "elsewhere")
    with raises(UserCodeError, "`reader:opened_parts`", "No such file or directory: 'gone'"):
        source("reader:opened_parts", options={"folder": "gone"}).plan(FILES, {"id": TEXT}, 1)
    assert os.getcwd() == str(folder / "elsewhere")


def test_values_of_any_type(tmp_path: Path) -> None:
    asked = {"image": IMAGE, "tags": replace(CATEGORY, many=True), "meta.boxes.x": replace(NUMBER, many=True)}
    found = read(source("reader:pictures", path=str(tmp_path)), asked)
    assert [parse(row.pop("image")).path for row in found.rows] == ["", "x/a.png"]
    assert found.rows == [{"tags": ["a", "b"], "meta.boxes.x": [1, 2]}, {"tags": [], "meta.boxes.x": []}]
    assert [fault[:2] for fault in found.faults] == [("forbidden_path", "image")]


def test_what_is_noted_and_counted(tmp_path: Path) -> None:
    plan = source(path=str(tmp_path), options={"count": 99}, inputs=["lib/**"]).plan(FILES, ASKED, 1)
    assert [file.path for file in plan.inputs] == ["lib/__init__.py", "lib/deep/more.py"]
    [note] = plan.notes
    assert_names(note, "rows", "`reader:rows`", "`count`")
    plan = source(options={"count": 99}, count=1000).plan(FILES, ASKED, 1)
    assert (plan.rows, 10_000 < plan.bytes < 20_000) == (1000, True)
    [note] = plan.notes
    assert_names(note, "files", "`reader:rows`", "`inputs`")
    assert source().plan(FILES, ASKED, 1).rows == 3


@pytest.mark.parametrize("odd", [[1], "text", 7])
def test_a_row_that_is_no_dictionary(odd: Any) -> None:
    found = read(source(options={"odd": odd}), ASKED)
    [reject] = found.rejects
    assert (reject.position, reject.reason) == (1, "malformed_row")
    assert_names(reject.message, "dictionary", type(odd).__name__)
    assert len(found.rows) == 2


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"options": {"fail": 0}}, ["`reader:rows`", "reader.py, line 11: KeyError: 0"]),
        ({"options": {"cuont": 1}}, ["`reader:rows`", "cuont: ", "argument 'cuont'"]),
        ({"rows": "reader:none"}, ["`reader:none`", "dictionaries", "NoneType"]),
        ({"rows": "reader:ends"}, ["`reader:ends`", "reader.py, line", "SystemExit: 3"]),
        ({"rows": "reader:empty"}, ["`reader:empty`", "no row", "dictionaries"]),
        ({"rows": "reader:parts"}, ["`reader:parts`", "no row"]),
        ({"rows": "reader:rowz"}, ["`reader:rowz`", "reader", "`rowz`", "mean `rows`"]),
        ({"rows": "reader:TABLE"}, ["`reader:TABLE`", "function", "int"]),
        ({"parts": "reader:bad_parts"}, ["`reader:bad_parts`", "JSON values"]),
        ({"parts": "reader:none"}, ["`reader:none`", "one part", "NoneType"]),
        ({"inputs": ["*.nope"]}, ["`inputs`", "*.nope"]),
    ],
)
def test_mistakes_end_the_plan(options: dict[str, Any], facts: list[str]) -> None:
    with raises(UserError, *facts):
        reader_of(UserRows(format="python", **{"rows": "reader:rows", **options})).plan(FILES, ASKED, 1)


def test_a_column_that_no_row_has() -> None:
    with raises(SourceError, "`reader:rows`", "'txt'", "first rows", "id, text, n"):
        source().plan(FILES, {"txt": TEXT}, 1)
    assert read(source(), {"txt": replace(TEXT, optional=True)}).rows == [{"txt": None}] * 3


def test_a_failure_while_reading_ends_the_build() -> None:
    late = source(options={"count": 30, "fail": 25})
    with raises(UserCodeError, "`reader:rows`", "reader.py, line 11: KeyError: 25") as raised:
        read(late, ASKED)
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "reference", ["reader", "reader:", ":rows", "a b:c", "../reader:rows", "reader.py:rows:x", "os.:x"]
)
def test_what_is_no_reference(reference: str) -> None:
    with raises(ValidationError, "`module:function`", repr(reference)):
        source(reference)
    with raises(UserCodeError, f"`{reference}`", "`module:function`", "`reader:rows`"):
        load(reference)


def test_code_is_gathered_with_what_it_imports(folder: Path) -> None:
    code = UserCode.of(["reader:rows", "reader:parts", "json:loads"], str(folder))
    assert list(code.files) == ["lib/__init__.py", "lib/deep/more.py", "reader.py", "words.py"]
    moved = UserCode("/elsewhere", dict(reversed(code.files.items())))
    assert moved.sha256 == code.sha256
    assert replace(code, files={**code.files, "words.py": b""}).sha256 != code.sha256


def test_code_is_imported_where_its_folder_is_not(folder: Path) -> None:
    code = pickle.loads(pickle.dumps(UserCode.of(["reader:rows"], str(folder))))
    other = replace(code, files={**code.files, "words.py": b"def word(number):\n    return 'other'\n"})
    for path in ("reader.py", "words.py"):
        os.remove(folder / path)
    other.install()
    other.install()
    assert next(load("reader:rows")())["text"] == "other"
    assert load("reader:rows").__code__.co_filename == str(folder / "reader.py")
    assert str(folder) not in sys.path
    with raises(UserCodeError, "`unused:rows`", "no module unused"):
        load("unused:rows")


@pytest.mark.parametrize(
    ("reference", "facts"),
    [
        ("raeder:rows", ["`raeder:rows`", "no raeder.py", "mean `reader`"]),
        ("broken:rows", ["broken.py, line 1", "never closed"]),
        ("random:rows", ["`random:rows`", "Python", "rename"]),
        ("link:rows", ["link.py", "link", "folder"]),
        ("fails:rows", ["`fails:rows`", "fails.py, line 3: ZeroDivisionError: division by zero"]),
        ("needs:rows", ["`needs:rows`", "needs.py, line 1: ModuleNotFoundError", "'not_there_at_all'"]),
    ],
)
def test_code_that_cannot_be_loaded(folder: Path, tmp_path_factory: Any, reference: str, facts: list[str]) -> None:
    outside = tmp_path_factory.mktemp("outside") / "link.py"
    outside.write_text("def rows(): ...\n")
    (folder / "link.py").symlink_to(outside)

    def gather_and_load() -> None:
        UserCode.of([reference], str(folder)).install()
        load(reference)

    with raises(UserCodeError, *facts):
        gather_and_load()
