"""Small tokenizers as models bring them, trained here by the package `tokenizers`, and hard texts for them."""

import base64
import random
from pathlib import Path

import tiktoken
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HARD = [
    "",
    " ",
    "plain words, and 12,345 numbers",
    "Ünïcödé straße ﬁn ℡ １ İstanbul",
    "日本語のテキスト と 한국어 и русский العربية ไทย हिन्दी",
    "😀 👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301 \u200b zero\u00adwidth",
    "line\nbreak\r\ntab\tbell\a null\0inside \x7f \u2028 \ufffd \U0010ffff",
    "<|endoftext|> </s> [SEP] [CLS] <pad> ## ▁ Ġ",
    "x" * 5000,
]
"""Multilingual, emoji, control characters, NUL, names of special tokens, a word without end."""


def corpus(rows: int = 400) -> list[str]:
    """Sentences of made words, the same at each call."""
    draw = random.Random(7)
    words = ["".join(draw.choices("etaoinshrdluçéß日本", k=draw.randint(1, 8))) for _ in range(300)]
    return [" ".join(draw.choices(words, k=draw.randint(3, 30))).capitalize() + "." for _ in range(rows)] + HARD


def byte_level() -> Tokenizer:
    """A BPE like GPT-2's, which adds nothing."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": ["<|endoftext|>"], "initial_alphabet": alphabet, "show_progress": False}
    made.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, **options))
    return made


def unigram() -> Tokenizer:
    """A Unigram like T5's: `</s>` ends each text."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        corpus(),
        trainers.UnigramTrainer(vocab_size=500, special_tokens=special, unk_token="<unk>", show_progress=False),
    )
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return made


def wordpiece() -> Tokenizer:
    """WordPieces like BERT's: [CLS] and [SEP] around each text; its own truncation and padding, to be ignored."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        corpus(), trainers.WordPieceTrainer(vocab_size=500, special_tokens=special, show_progress=False)
    )
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_truncation(9)
    made.enable_padding(length=12)
    return made


MADE = {"bpe": byte_level, "unigram": unigram, "wordpiece": wordpiece}


def ranks() -> dict[bytes, int]:
    """Ranks like tiktoken's: the bytes, then merges."""
    pieces = [bytes([byte]) for byte in range(256)]
    merged = {text[at : at + width].encode() for text in corpus()[:60] for width in (2, 3, 4) for at in range(0, 40, 3)}
    reached = set(pieces)
    for piece in sorted(merged, key=lambda piece: (len(piece), piece)):
        if any(piece[:cut] in reached and piece[cut:] in reached for cut in range(1, len(piece))):
            reached.add(piece)
            pieces.append(piece)
    return {piece: rank for rank, piece in enumerate(pieces)}


def write_ranks(path: Path) -> None:
    lines = (f"{base64.b64encode(piece).decode()} {rank}\n" for piece, rank in ranks().items())
    path.write_text("".join(lines))


def of_ranks(pattern: str) -> tiktoken.Encoding:
    return tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks(), special_tokens={})
