"""A dataset that holds every kind, made from nothing: what the tests of the whole job build.

Rows of two JSON Lines files; pictures of every mode; numbers whose float32 sums depend on their order; words in several
scripts. The same arguments give the same files.
"""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from recordmill.pipeline.spec.model import Spec, parse_spec

PICTURES = 24
WORDS = "der die das und ναι όχι да нет 是 否 हिन्दी مرحبا naïve CAFÉ Straße don't x_1 42 🙂 foo bar".split()
NAMES = ["cat", "dog", "naïve", "鳥", "with space", "7"]

SPEC = """
name: kinds
source: SOURCE
key: id
splits: {train: 60, validation: 20, test: 20}
shards: 4
label: label
features:
  image: {kind: image, size: [12, 10], normalize: dataset}
  text: {kind: text, vocabulary: 12, max_length: 6}
  open: {kind: text, column: text, minimum_count: 2}
  category: {kind: category}
  given: {kind: category, column: category, classes: [dog, cat]}
  number: {kind: number}
  plain: {kind: number, column: number, normalize: none}
  note: {kind: raw, column: text}
  count: {kind: raw, type: int64}
  weight: {kind: raw, type: float32, column: number}
  label: {kind: category}
"""
MORE = """
  frames: {kind: image_sequence, size: [6, 5], max_length: 2, normalize: dataset}
  boxes: {kind: boxes, image: image, order: coco, unit: absolute, max_length: 3}
  tags: {kind: categories, max_length: 4}
  hot: {kind: categories, column: tags, read: multi_hot, minimum_count: 3}
  levels: {kind: numbers}
  triple: {kind: numbers, length: 3, normalize: min_max}
  places: {kind: raw, type: int64, many: true, column: counts}
  gap: {kind: number, optional: true, impute: median, indicator: true}
  logged: {kind: number, column: gap, optional: true, transform: log1p}
  bucket: {kind: number, column: number, quantiles: 7}
  maybe: {kind: category, optional: true, oov_buckets: 2, max_classes: 3}
  hashed: {kind: category, column: category, hash_buckets: 9}
  crossed: {kind: category, cross: [category, maybe], hash_buckets: 11}
  pieces: {kind: text, column: text, tokenizer: sentencepiece, vocabulary: 90, begin: true, end: true}
  wordpieces: {kind: text, column: text, tokenizer: wordpiece, vocabulary: 120, max_length: 8}
  folded: {kind: text, column: text, case: fold, ngrams: [1, 2], oov_buckets: 3, minimum_count: 3}
  letters: {kind: text, column: text, tokenizer: characters, max_length: 9, truncate: start, keep_length: true}
  bytes: {kind: text, column: text, tokenizer: bytes, end: true}
  captions: {kind: texts, begin: true, end: true, vocabulary: 16, max_texts: 3, max_length: 4}
  shared: {kind: text, column: text, vocabulary: {shared_with: open}}
  missing: {kind: image, column: photo, optional: true, size: 7, fit: crop, resize: bicubic, channels: 1}
"""
ANALYZED = "image text category number label hot triple gap bucket maybe pieces".split()
"""A feature of each way to look at all rows: what the others store depends on their own row, or is found likewise."""
MODEL = Path(__file__).with_name("chat_templates") / "tokenizer.json"
ARRAYS = f"""
  pose: {{kind: keypoints, image: image, points: 2, flip_pairs: [], unit: absolute, max_length: 3}}
  grid: {{kind: array, shape: [2, 3], dtype: int16, optional: true}}
  steps: {{kind: array, shape: [null, 2], dtype: bfloat16, max_length: 3, optional: true}}
  said: {{kind: chat, model: {MODEL}, tools: tools}}
  known: {{kind: text, column: text, tokenizer: huggingface, model: {MODEL}}}
  twice: {{kind: pair, first: text, second: text, model: {MODEL}, special_tokens: false, separator: </s>}}
  mask: {{kind: mask, image: any, column: photo, optional: true}}
  any: {{kind: image, fit: none, column: image}}
  drawn: {{kind: mask, image: image, column: shapes, draw: instances}}
  objects: {{kind: masks, image: image, column: shapes, draw: objects}}
  found: {{kind: token_labels, column: said, text: known, spans: true, classes: [O, B-A, I-A]}}
"""
"""Kinds that no golden dataset holds; only their columns are read."""
MORE_IMAGES = """
  jpeg: {kind: image, column: image, size: [16, 16], fit: crop, store: jpeg, normalize: minus_one_one}
  png: {kind: image, column: image, size: [9, 14], fit: stretch, store: png, channels: 1}
  pixels: {kind: image, column: image, size: [8, 8], store: raw, normalize: none, background: [0, 0, 255]}
  original: {kind: image, column: image, store: original, size: 12, fit: stretch}
  any_size: {kind: image, column: image, shorter_side: 5, normalize: imagenet}
"""


def make(
    folder: Path, rows: int, *, more_images: bool = False, swap_files: bool = False, only: Sequence[str] = ()
) -> Spec:
    """Writes the inputs into a folder and gives the spec, with all features or `only` some.

    `swap_files` puts each file's rows into the other.
    """
    write_pictures(folder / "pictures")
    lines = list(_lines(rows))
    halves = [lines[: rows // 3], lines[rows // 3 :]]
    for name, half in zip(("a", "b"), halves[::-1] if swap_files else halves, strict=True):
        (folder / f"{name}.jsonl").write_text("".join(half), encoding="utf-8")
    found = spec(folder, more_images=more_images)
    return found.model_copy(update={"features": {name: found.features[name] for name in only or found.features}})


def spec(folder: Path, *, more_images: bool = False, arrays: bool = False) -> Spec:
    """The spec of the inputs in a folder."""
    text = spec_text(f"{{format: jsonl, path: {folder}}}", arrays=arrays)
    return parse_spec(text + (MORE_IMAGES if more_images else ""))


def spec_text(source: str, *, arrays: bool = False) -> str:
    """The spec of a source that has the columns."""
    return SPEC.replace("SOURCE", source) + MORE + (ARRAYS if arrays else "")


def _lines(rows: int) -> Iterator[str]:
    random = np.random.default_rng(7)
    pictures = random.integers(0, PICTURES, rows)
    numbers = (random.standard_normal(rows) * 10.0 ** random.integers(-3, 6, rows)).astype(np.float32)
    names = random.integers(0, len(NAMES), (rows, 2))
    lengths = random.integers(0, 9, rows)
    lists = random.integers(0, 5, rows)
    words = random.zipf(1.3, int(lengths.sum())) % len(WORDS)
    ends = np.cumsum(lengths)
    for row in range(rows):
        said = [WORDS[word] for word in words[ends[row] - lengths[row] : ends[row]]]
        made = {
            "id": f"row-{row}",
            "image": _picture(pictures[row]),
            "text": " ".join(said),
            "captions": [" ".join(said[start : start + 2]) for start in range(0, len(said), 2)],
            "category": NAMES[names[row, 0]],
            "number": float(numbers[row]),
            "count": row * (1 << 40) - 5,
            "label": NAMES[names[row, 1] % 4],
            "tags": NAMES[: lists[row]],
            "levels": [float(number) for number in numbers[row : row + lists[row]]],
            "triple": [row % 7, row % 11 / 4, -1.5],
            "counts": list(range(lists[row])),
            "said": [
                {"role": "user", "content": " ".join(said[:2])},
                {"role": "assistant", "content": " ".join(said), **({"n": [row, None]} if row % 2 else {})},
            ],
            **({"tools": [{"function": {"name": NAMES[row % 6]}}]} if row % 4 else {}),
            "pose": [[place, 1, 2, row % 9, place, row % 3] for place in range(lists[row])],
            "grid": [[row, -row, 1], [2, row % 5, 3]],
            **({} if row % 7 == 0 else {"steps": [[place / 2, -row % 9] for place in range(1 + lists[row])]}),
            "shapes": [{"name": "a", "polygons": [[0, 0, 1, 0, 1, place]]} for place in range(lists[row])],
            "frames": [_picture(pictures[row - place]) for place in range(lists[row])],
            "boxes": [[place, 1, 2 + row % 3, 2] for place in range(lists[row])],
            **({} if row % 5 == 0 else {"gap": row % 1000 / 8}),
            **({} if row % 3 == 0 else {"maybe": NAMES[row % 5], "photo": _picture(pictures[row])}),
        }
        yield json.dumps(made, ensure_ascii=row % 2 == 0) + "\n"


def _picture(number: int) -> str:
    return f"pictures/{number:02d}.{'jpg' if number % 2 else 'png'}"


def write_pictures(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    for number in range(PICTURES):
        height, width = random.integers(3, 40, 2)
        modes = ("RGB",) if number % 2 else ("RGBA", "L", "LA", "RGB")
        mode = modes[number // 2 % len(modes)]
        pixels = random.integers(0, 256, (height, width, len(Image.new(mode, (1, 1)).getbands())), np.uint8)
        picture = Image.fromarray(pixels.squeeze(-1) if mode == "L" else pixels, mode)
        (folder / f"{number:02d}.{'jpg' if number % 2 else 'png'}").write_bytes(_encode(picture, number))


def _encode(picture: Image.Image, number: int) -> bytes:
    into = io.BytesIO()
    if number % 2:
        exif = Image.Exif()
        if number % 6 == 1:
            exif[0x0112] = number // 2 % 8 + 1  # orientation
        picture.save(into, "JPEG", quality=90, exif=exif)
    else:
        picture.save(into, "PNG")
    return into.getvalue()
