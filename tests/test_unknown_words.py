"""Words missing from the live version's vocabulary, by versions' sums of words."""

import hashlib
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.compare.words import unknown_words
from recordmill.pipeline.dataset.arrow_tables import WORDS
from recordmill.pipeline.dataset.manifest import Manifest
from recordmill.pipeline.errors import DatasetError

TEXT = {"kind": "text", "length": "varying", "max_length": None, "vocabulary": "text.txt"} | {
    "padding_id": 0, "unknown_id": 1, "first_id": 2,
}  # fmt: skip
LIVE = {"the": 50, "cat": 30, "sat": 15, "once": 5, "rare": 3}


def version(folder: Path, words: list[str], sums: Mapping[str, Mapping[str, int]], **more: Any) -> ComparedVersion:
    """Makes a version with a vocabulary, and sums of words by folder."""
    files = {"text.txt": "".join(f"{word}\n" for word in words).encode()}
    for path, counts in sums.items():
        for bucket in {zlib.crc32(word.encode()) % 8 for word in counts}:
            own = {word: count for word, count in counts.items() if zlib.crc32(word.encode()) % 8 == bucket}
            each = [{"word": word.encode(), "count": count} for word, count in own.items()]
            rows = [row | {"feature": feature} for feature in ("other", "text") for row in each]
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, WORDS) as writer:
                writer.write_table(pa.Table.from_pylist(rows, WORDS))
            files[f"{path}/bucket-{bucket:03}.arrow"] = sink.getvalue().to_pybytes()
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    listed = {path: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in files.items()}
    features = {"text": TEXT | {"vocabulary_size": len(words) + 2} | more}
    return ComparedVersion(Manifest("d", "v", "k", None, features, {}, {}, {}, files=listed), folder)


FRENCH = {"le": 40, "chat": 20, "the": 40}
CASES: dict[str, tuple[list[str], Mapping[str, Mapping[str, int]], str, Any]] = {
    "the same words": (["cat", "the"], {"summaries/vocabularies": LIVE}, "", ([23, 23], [103, 103])),
    "another language": (["le", "the"], {"summaries/vocabularies": FRENCH}, "", ([23, 60], [103, 100])),
    "a new span": (["le"], {"spans/a/summaries/vocabularies": FRENCH}, "a", ([23, 60], [103, 100])),
    "another span": (["le"], {"spans/b/summaries/vocabularies": FRENCH}, "a", None),
    "no sums": (["le"], {}, "", None),
    "one vocabulary": (["the", "cat"], {"summaries/vocabularies": FRENCH}, "", None),
}


@pytest.mark.parametrize("case", CASES)
def test_words_that_the_live_vocabulary_lacks(case: str, tmp_path: Path) -> None:
    words, sums, span, expected = CASES[case]
    live = version(tmp_path / "live", ["the", "cat"], {"summaries/vocabularies": LIVE})
    assert unknown_words("text", live, version(tmp_path / "new", words, sums), span) == expected


def test_a_learned_tokenizer_lacks_the_words_that_it_never_saw(tmp_path: Path) -> None:
    live = version(tmp_path / "live", ["t", "##he"], {"summaries/tokenizers": LIVE}, tokenizer="wordpiece")
    new = version(tmp_path / "new", ["l", "##e"], {"summaries/tokenizers": FRENCH | {"rare": 9}}, tokenizer="wordpiece")
    assert unknown_words("text", live, new) == ([3, 60], [103, 109])


def test_damaged_sums_are_a_fault(tmp_path: Path) -> None:
    live = version(tmp_path / "live", ["the"], {"summaries/vocabularies": LIVE})
    new = version(tmp_path / "new", ["le"], {"summaries/vocabularies": FRENCH})
    next((tmp_path / "new/summaries/vocabularies").iterdir()).write_bytes(b"")
    with pytest.raises(DatasetError, match=r"bucket-\d+.arrow"):
        unknown_words("text", live, new)
