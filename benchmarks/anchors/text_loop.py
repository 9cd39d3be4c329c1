"""Anchor: what a person writes by hand: count the words of the train split, then write every document's ids.

Two passes over the file, plain Python, no Beam. The words are those of `tensorflow.text`: letters, marks, digits and
underscores, in lower case.

    python benchmarks/anchors/text_loop.py documents.jsonl OUT
"""

import hashlib
import json
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow as tf

VOCABULARY = 4000
SHARDS = 8
MARKS = frozenset(c for c in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(c)[0] == "M")


def ranges(characters: Iterable[str]) -> str:
    """Writes characters for a class of a regular expression, neighbours as ranges: it is searched one by one."""
    runs: list[list[str]] = []
    for character in sorted(characters):
        if runs and ord(character) == ord(runs[-1][-1]) + 1:
            runs[-1].append(character)
        else:
            runs.append([character])
    return "".join(f"{run[0]}-{run[-1]}" for run in runs)


PLAIN_WORD = re.compile(r"\w+")
MARKED_WORD = re.compile(f"[\\w{ranges(MARKS)}]+")


def words(text: str) -> list[str]:
    """Splits a text; without the marks the pattern is three times as fast, and right for a text that has none."""
    text = text.lower()
    plain = text.isascii() or MARKS.isdisjoint(text)
    return (PLAIN_WORD if plain else MARKED_WORD).findall(text)


def rows(path: Path) -> Iterator[tuple[dict[str, str], int]]:
    """Reads each document with the hash of its id."""
    with path.open("rb") as file:
        for line in file:
            row = json.loads(line)
            yield row, int.from_bytes(hashlib.blake2b(row["id"].encode(), digest_size=8).digest(), "big")


def count(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Numbers the most frequent words from 2 and the languages from 0, both of the train split."""
    found, languages = Counter[str](), Counter[str]()
    for row, key in rows(path):
        if key % 10 < 8:
            found.update(words(row["text"]))
            languages[row["language"]] += 1
    ids = {word: index + 2 for index, (word, _) in enumerate(found.most_common(VOCABULARY))}
    return ids, {language: index for index, (language, _) in enumerate(languages.most_common())}


def main(path: Path, out: Path) -> None:
    """Writes the documents' ids, labels and keys to eight files."""
    out.mkdir(parents=True)
    ids, labels = count(path)
    writers = [tf.io.TFRecordWriter(str(out / f"documents-{shard:05d}")) for shard in range(SHARDS)]
    for row, key in rows(path):
        record = tf.train.Example()
        feature = record.features.feature
        feature["text"].int64_list.value.extend([ids.get(word, 1) for word in words(row["text"])])
        feature["language"].int64_list.value.append(labels.get(row["language"], -1))
        feature["key"].bytes_list.value.append(row["id"].encode())
        writers[(key >> 8) % SHARDS].write(record.SerializeToString())
    for writer in writers:
        writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
