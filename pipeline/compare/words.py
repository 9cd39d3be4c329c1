"""Words of a new version missing from the live version's vocabulary, counted by the versions' sums.

With one vocabulary in both versions, stored ids show unknown words. A relearned one knows even the words of a text in
another language, which only the live vocabulary lacks.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recordmill.pipeline.compare.versions import ComparedVersion
from recordmill.pipeline.dataset.arrow_tables import WORDS, read_table
from recordmill.pipeline.dataset.file_names import span_file
from recordmill.pipeline.dataset.paths import read_checked

TEXTS = ("text", "texts")
RARE = 3
"""The highest count of a word likely to stem from one row, as words come in bursts. Of 150 to 30,000 documents, such
words' share was within 0.03 of the share unknown in others; the share of words occurring once (Good, 1953) a third."""
VOCABULARIES, TOKENIZERS = "summaries/vocabularies/", "summaries/tokenizers/"
"""Sums of the words from which a vocabulary or a tokenizer is learned."""


def unknown_words(
    name: str, before: ComparedVersion, after: ComparedVersion, span: str = ""
) -> tuple[list[int], list[int]] | None:
    """Counts a text's words in the train split missing from `before`'s vocabulary, and all words, before and after.

    Before, a `RARE` word counts as missing, as it would without its row, to get the share expected of new rows of the
    same kind. A learned tokenizer knows every word it saw. None for other kinds, equal vocabularies, and without sums.
    Raises: DatasetError: a file is damaged.
    """
    if before.manifest.features[name]["kind"] not in TEXTS or before.words_digest(name) == after.words_digest(name):
        return None
    lacking, words = np.zeros(2, np.int64), np.zeros(2, np.int64)
    prefix = span_file(span, "") if span else ""
    paths = {*before.manifest.files, *(path.removeprefix(prefix) for path in after.manifest.files)}
    for path in (path for path in paths if path.startswith((VOCABULARIES, TOKENIZERS))):
        old, new = _words(name, before, path), _words(name, after, prefix + path)
        known = old["word"]
        if path.startswith(VOCABULARIES):
            known = pa.array([word.encode() for word in before.words(name) or ()], pa.binary())
        is_lacking = [pc.invert(pc.is_in(each["word"], known)) for each in (old, new)]
        is_lacking[0] = pc.or_(is_lacking[0], pc.less_equal(old["count"], RARE))
        words += [_total(each) for each in (old, new)]
        lacking += [_total(each.filter(mask)) for each, mask in zip((old, new), is_lacking, strict=True)]
    return (lacking.tolist(), words.tolist()) if words.all() else None


def _words(name: str, version: ComparedVersion, path: str) -> pa.Table:
    """Reads a file of sums; empty if missing."""
    if path not in version.manifest.files:
        return WORDS.empty_table()
    data = read_checked(version.folder, path, version.manifest.files[path]["sha256"])
    table = read_table(version.folder, path, data, WORDS)
    return table.filter(pc.equal(table["feature"], name))


def _total(table: pa.Table) -> int:
    return pc.sum(table["count"]).as_py() or 0
