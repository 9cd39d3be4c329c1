"""The jar for a local Flink, merged from many: `deploy/flink/local/merge_jars.py`."""

import importlib.util
import zipfile
from pathlib import Path

import pytest

from tests.messages import raises

SCRIPT = Path(__file__).parents[1] / "deploy/flink/local/merge_jars.py"
LOADER = importlib.util.spec_from_file_location("merge_jars", SCRIPT)
merge_jars = importlib.util.module_from_spec(LOADER)
LOADER.loader.exec_module(merge_jars)


def jar(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as target:
        for name, text in files.items():
            target.writestr(name.replace("__", "/"), text)
    return path


def merged(folder: Path, *jars: Path) -> dict[str, str]:
    merge_jars.merge(jars, folder / "merged.jar", "a.Main")
    with zipfile.ZipFile(folder / "merged.jar") as result:
        assert len(result.namelist()) == len(set(result.namelist()))
        return {name: result.read(name).decode() for name in result.namelist()}


def test_services_are_joined_and_licenses_kept_apart(tmp_path: Path) -> None:
    services = {"META-INF__services__S": "a.A\na.B", "META-INF__LICENSE": "one"}
    one = jar(tmp_path / "one.jar", **services, **{"a__A.class": "1"})
    two = jar(tmp_path / "two.jar", **{"META-INF__services__S": "a.B\na.C\n", "META-INF__LICENSE": "two"})
    assert merged(tmp_path, one, two) == {
        "META-INF/MANIFEST.MF": "Manifest-Version: 1.0\r\nMain-Class: a.Main\r\nMulti-Release: true\r\n\r\n",
        "META-INF/services/S": "a.A\na.B\na.C\n",
        "META-INF/licenses/one/LICENSE": "one",
        "META-INF/licenses/two/LICENSE": "two",
        "a/A.class": "1",
    }


@pytest.mark.parametrize(
    "name",
    ["META-INF__MANIFEST.MF", "META-INF__A.SF", "META-INF__A.RSA", "META-INF__INDEX.LIST", "module-info.class"]
    + ["META-INF__versions__9__module-info.class", "META-INF__maven__g__a__pom.xml"],
)
def test_what_holds_for_one_jar_alone_is_dropped(name: str, tmp_path: Path) -> None:
    one, two = jar(tmp_path / "one.jar", **{name: "1"}), jar(tmp_path / "two.jar", **{name: "2"})
    assert list(merged(tmp_path, one, two)) == ["META-INF/MANIFEST.MF"]


def test_equal_files_are_written_once_and_others_refused(tmp_path: Path) -> None:
    one, two = (jar(tmp_path / f"{name}.jar", **{"a__A.class": "1"}) for name in ("one", "two"))
    assert merged(tmp_path, one, two)["a/A.class"] == "1"
    other = jar(tmp_path / "x.jar", **{"a__A.class": "2"})
    with raises(merge_jars.ConflictError, "one.jar", "x.jar", "a/A.class", "exclude"):
        merged(tmp_path, one, two, other)


def test_neither_order_nor_time_changes_a_byte(tmp_path: Path) -> None:
    one = jar(tmp_path / "one.jar", **{"a__A.class": "1"})
    two = jar(tmp_path / "two.jar", **{"b__B.class": "2"})
    merge_jars.merge([one, two], tmp_path / "m1.jar", "a.Main")
    entry = zipfile.ZipInfo("b/B.class", (2020, 2, 2, 2, 2, 2))
    with zipfile.ZipFile(two, "w") as target:
        target.writestr(entry, "2")
    merge_jars.merge([two, one], tmp_path / "m2.jar", "a.Main")
    assert (tmp_path / "m1.jar").read_bytes() == (tmp_path / "m2.jar").read_bytes()
