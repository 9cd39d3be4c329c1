"""The folder `summaries/` of a version: what it holds of the rows, and a spec that leaves it out."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from recordmill.pipeline.build.build import build
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.publishing import Published

SPEC = """
name: notes
source: {{format: csv, path: {folder}/rows.csv}}
key: id
splits: {{train: 1, test: 0.001}}
features:
  note: {{kind: text, minimum_count: 2}}
  pay: {{kind: number, impute: median, optional: true}}
"""


def published(folder: Path, output: str, *lines: str) -> Published:
    """Builds a version of rows of which one holds a rare name."""
    rows = [f"{number},seen often,{number}" for number in range(20)]
    (folder / "rows.csv").write_text("\n".join(["id,note,pay", *rows, "20,rumpelstilzchen,5000"]) + "\n")
    return build(parse_spec("\n".join([SPEC.format(folder=folder), *lines])), str(folder / output))


def table(version: Path, summary: str) -> pa.Table:
    files = sorted((version / "summaries" / summary).glob("bucket-*.arrow"))
    return pa.concat_tables([pa.ipc.open_stream(file.read_bytes()).read_all() for file in files])


@pytest.mark.slow
def test_a_version_holds_every_counted_word_and_value_unless_the_spec_leaves_them_out(tmp_path: Path) -> None:
    with_all, without = published(tmp_path, "with"), published(tmp_path, "without", "summaries: false")
    kept, bare = Path(with_all.folder), Path(without.folder)
    assert "rumpelstilzchen" not in (kept / "transform_fn/assets/note.vocabulary.txt").read_text()
    assert set(table(kept, "vocabularies")["word"].to_pylist()) == {b"seen", b"often", b"rumpelstilzchen"}
    folders = {folder.name for folder in (kept / "summaries").iterdir()}
    assert folders == {"vocabularies", "moments", "quantiles", "rows"}

    assert not (bare / "summaries").exists()
    left_out = with_all.manifest.files.keys() - without.manifest.files.keys()
    assert left_out == {name for name in with_all.manifest.files if re.match("summaries/", name)}
    assert with_all.manifest.statistics == without.manifest.statistics
    assert with_all.manifest.build_key != without.manifest.build_key
