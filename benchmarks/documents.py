"""Makes JSON Lines of documents (id, language, text) of about 550 bytes in ten languages, or repeats those of a file.

The same count gives the same bytes. Each repetition has new ids, so that every row is a row of its own.
"""

import itertools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ALPHABETS = {
    "en": "etaoinshrdlucmfwypvbgkqjxz",
    "de": "enisratdhulcgmobwfkzpväüöß",
    "fr": "esaitnrulodcpméàèêçvqfbghj",
    "pl": "aiezowncsrytkdpmłjulbęgąóśżćń",
    "ru": "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэф",
    "el": "αοιετσνηυρπκμλςγδχθφβξζψ",
    "hi": "कखगघचछजटडणतथदधनपफबभमयरलवशसह\u093e\u093f\u0940\u0941\u0947\u094b\u094d",
    "ar": "ابتثجحخدذرزسشصضطظعغفقكلمنهوي",
    "zh": "的一是不了人我在有他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可",
    "ko": "이다는에의가을하고를한은로지사도기대자리시인해어나주일정보",
}
WORDS = 3000  # of each language
BASE_DOCUMENTS = 20_000
SENTENCES, SENTENCE_WORDS = 4, 7


def vocabulary(language: str) -> list[str]:
    """Draws a language's words, 2 to 9 letters long."""
    random = np.random.default_rng(list(language.encode()))
    letters = np.array(list(ALPHABETS[language]))
    return ["".join(random.choice(letters, size=length)) for length in random.integers(2, 10, size=WORDS)]


def generated_documents(count: int) -> Iterator[dict[str, str]]:
    """Makes Markdown documents whose words are as unevenly frequent as real ones (Zipf's law)."""
    random = np.random.default_rng(0)
    vocabularies = {language: vocabulary(language) for language in ALPHABETS}
    shares = 1 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    languages = list(ALPHABETS)
    for index in range(count):
        language = languages[random.integers(len(languages))]
        picked = random.choice(WORDS, size=(SENTENCES, SENTENCE_WORDS), p=shares)
        sentences = [" ".join(vocabularies[language][i] for i in row) for row in picked]
        bullets = "\n\n".join(f"- {line}:\n\n`tool --set {{{{{line.split()[0]}}}}} {index}`" for line in sentences[2:])
        yield {
            "id": f"page/{index}",
            "language": language,
            "text": f"# {sentences[0]}\n\n> {sentences[1]}.\n\n{bullets}\n",
        }


def read_documents(path: Path) -> Iterator[dict[str, str]]:
    """Reads id, language and text of a JSON Lines file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield {name: row[name] for name in ("id", "language", "text")}


def repeated(documents: Iterable[dict[str, str]]) -> Iterator[bytes]:
    """Gives JSON lines without end: the documents again and again under new ids."""
    heads, tails = [], []
    for row in documents:
        heads.append(json.dumps({"id": row["id"]}, ensure_ascii=False)[:-2].encode())
        tails.append(json.dumps({"language": row["language"], "text": row["text"]}, ensure_ascii=False)[1:].encode())
    for repetition in itertools.count():
        for head, tail in zip(heads, tails, strict=True):
            yield b'%b#%d", %b\n' % (head, repetition, tail)


def write_documents(path: Path, source: Path | None, count: int | None = None, size: int | None = None) -> None:
    """Writes `count` lines, or lines of at least `size` bytes in all, from the source file or generated."""
    documents = read_documents(source) if source else generated_documents(BASE_DOCUMENTS)
    written = 0
    with path.open("wb") as file:
        for line in itertools.islice(repeated(documents), count):
            written += file.write(line)
            if size is not None and written >= size:
                break


def write_tokenizer(path: Path, documents: Path) -> None:
    """Trains a byte-level BPE on the first 10,000 documents."""
    with open(documents, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in itertools.islice(lines, 10_000)]
    tokenizer, alphabet = Tokenizer(models.BPE()), pre_tokenizers.ByteLevel.alphabet()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=32_000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(path))
