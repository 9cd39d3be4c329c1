"""A refreshed analysis with kept spans: what is learned, and every file, is that of a full build, to the bit."""

import hashlib
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from recordmill.pipeline.build.build import build
from recordmill.pipeline.build.run_options import Listener, Stage
from recordmill.pipeline.errors import UserError
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.versions.acts import rollback
from recordmill.pipeline.versions.publishing import Published
from tests.messages import assert_names, raises

SPEC = """
name: days
source: {format: jsonl, path: "FOLDER/{span}/rows.jsonl"}
splits: {train: 9, test: 1}
analysis: refresh
gate: false
label: label
features:
  label: {kind: category}
  text: {kind: text}
  piece: {kind: text, column: text, tokenizer: wordpiece, vocabulary: 60}
  rank: {kind: number, quantiles: 2}
  image: {kind: image, size: [4, 4], normalize: dataset}
"""
OF_THE_JOB = re.compile(
    r"dataset\.json|inputs\.arrow|report\.html|spans/.*/report\.json|(serving|transform_fn)/[^/]*\.pb"
)
"""Files that count the job's own sources, show its build key, or number TensorFlow's functions in its own order."""


def write(folder: Path, day: str, more: str = "") -> None:
    """Writes a day of rows with the same words, classes and ranks as any other, but images of another color."""
    (folder / day).mkdir(parents=True)
    shade = int(hashlib.sha256(day.encode()).hexdigest()[:2], 16)
    Image.new("RGB", (4, 4), (shade, 9, 60)).save(folder / day / "i.png")
    lines = [
        f'{{"label": "{label}", "text": "one two two three three three{more}", "rank": {rank}, "image": "i.png"}}'
        for label, rank in (("cat", 1), ("dog", 2), ("cat", 1), ("dog", 2), ("cat", 1), ("dog", 2))
    ]
    rows = [line.replace("{", f'{{"id": "{number}", ') for number, line in enumerate(lines)]
    (folder / day / "rows.jsonl").write_text("\n".join(rows) + "\n")


class Output:
    """An output, and what its builds said."""

    def __init__(self, folder: Path, name: str) -> None:
        self.spec, self.path, self.notes = SPEC.replace("FOLDER", str(folder)), folder.parent / name, list[str]()

    def build(self, stop_at: Stage | None = None) -> Published:
        """Builds all days; ends at a stage as a killed process does."""

        def stop(stage: Stage) -> None:
            if stage is stop_at:
                raise _Stopped

        self.notes.clear()
        listener = Listener(lambda plan, _: self.notes.extend(plan.notes), self.notes.append, on_stage=stop)
        return build(parse_spec(self.spec), str(self.path), listener=listener)


def content(published: Published) -> dict[str, bytes]:
    """Reads every file of a version that follows from its rows."""
    folder = Path(published.folder)
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if not OF_THE_JOB.fullmatch(name)}


@pytest.mark.nightly
def test_a_refreshed_version_is_a_full_builds_and_says_which_shards_it_touches(tmp_path: Path) -> None:
    rows, nightly = tmp_path / "rows", Output(tmp_path / "rows", "nightly")
    for day in ("monday", "tuesday"):
        write(rows, day)
    nightly.build()
    write(rows, "wednesday")
    second = nightly.build()  # no value of the graph changed; the pixels' statistics did
    assert second.kept_spans == ("monday", "tuesday")
    assert any("graph" in note and "2 spans" in note for note in nightly.notes)
    full = Output(rows, "full").build()
    assert content(second) == content(full)
    assert {"transform_fn/assets/text.vocabulary.txt", "tokenizers/piece.vocab.txt"} <= content(second).keys()
    assert second.manifest.statistics == full.manifest.statistics
    assert second.manifest.features == full.manifest.features
    assert second.manifest.rows == full.manifest.rows

    write(rows, "thursday", " new")
    third = nightly.build()
    (note,) = [note for note in nightly.notes if note.startswith("learned values changed")]
    assert_names(note, "text.vocabulary: 1 new, 0 gone, 0", "piece.tokenizer")
    assert third.kept_spans == ()
    assert content(third) == content(Output(rows, "all").build())


class _Stopped(BaseException):
    """The process ends here."""


@pytest.mark.nightly
def test_a_build_that_was_cut_off_never_goes_on_with_another_graph(tmp_path: Path) -> None:
    rows, nightly = tmp_path / "rows", Output(tmp_path / "rows", "nightly")
    for day in ("monday", "tuesday"):
        write(rows, day)
    write(rows, "extra", " other")
    first = nightly.build()  # its vocabulary holds a word more
    shutil.rmtree(rows / "extra")
    second = nightly.build()  # which reads no row
    assert content(second) == content(Output(rows, "second").build())
    write(rows, "wednesday")
    with pytest.raises(_Stopped):
        nightly.build(stop_at=Stage.COMPARE)  # all shards are written, by the graph of the second version
    rollback(str(nightly.path), first.manifest.version)
    third = nightly.build()
    assert content(third) == content(Output(rows, "full").build())
    assert any(note.startswith("learned values changed") for note in nightly.notes)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["summaries/rows/bucket-000.arrow", "transform_fn/saved_model.pb"])
def test_a_build_makes_what_the_live_version_lost(lost: str, tmp_path: Path) -> None:
    output = Output(tmp_path / "rows", "out")
    output.spec = output.spec[: output.spec.index("  piece")].replace("refresh", "frozen")
    write(tmp_path / "rows", "monday")
    whole = output.build()
    wanted = content(whole)
    (Path(whole.folder) / lost).unlink()
    if lost.startswith("transform_fn"):
        with raises(UserError, lost, "analysis: refresh"):
            output.build()
        output.spec = output.spec.replace("frozen", "refresh")
    again = output.build()
    assert wanted.items() <= content(again).items()
    assert (Path(again.folder) / lost).exists()
