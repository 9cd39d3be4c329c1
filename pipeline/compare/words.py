"""Words of a new version that the live version's vocabulary lacks, counted by the sums that versions keep.

Where both versions have one vocabulary, the stored ids show unknown words. Where a build learned anew, its vocabulary
knows the words of a text in another language, which only the live one lacks.
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
"""The most times that a word occurs whose rows may be one, as words come in bursts: of 150 to 30,000 documents, such
words' share was within 0.03 of that of unknown words in others; that of words that occur once (Good, 1953) a third."""
VOCABULARIES, TOKENIZERS = "summaries/vocabularies/", "summaries/tokenizers/"
"""The sums of the words that a vocabulary, or a tokenizer, is learned from."""


def unknown_words(
    name: str, before: ComparedVersion, after: ComparedVersion, span: str = ""
) -> tuple[list[int], list[int]] | None:
    """Counts a text's words in the train split that the vocabulary of `before` lacks, and all words, before and after.

    Before, a `RARE` word counts as lacking, as it would without its row: so the share is that of other rows of the same
    kind. The vocabulary of a learned tokenizer is every word that it saw.

    Returns:
        None for other kinds, for one and the same vocabulary, and where a version keeps no sums.

    Raises:
        DatasetError: a file is damaged.
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
    """Reads a file of sums; without it there are no words."""
    if path not in version.manifest.files:
        return WORDS.empty_table()
    data = read_checked(version.folder, path, version.manifest.files[path]["sha256"])
    table = read_table(version.folder, path, data, WORDS)
    return table.filter(pc.equal(table["feature"], name))


def _total(table: pa.Table) -> int:
    return pc.sum(table["count"]).as_py() or 0
