"""The benchmarks' inputs, made once and kept: photos, documents and the specs that build them."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from documents import write_documents, write_tokenizer
from photos import MASK_CLASSES, OUTLINE, PROFILES, write_masked, write_photos

IMAGE_SPEC = """\
name: photos
source: {{format: image_folder, path: {path}}}
splits: {splits}
features:
  image: {{kind: image, size: [224, 224], fit: stretch, store: jpeg, normalize: none}}
  label: {{kind: category}}
label: label
"""
ALONE_SPEC = """\
name: photos
source: {{format: image_folder, path: {path}/images}}
splits: {splits}
features:
  image: {{kind: image, size: [224, 224], fit: stretch, store: jpeg, normalize: none}}
"""
MASKED = [f"class{value}" for value in range(MASK_CLASSES + 1)]
MASKED_SPEC = ALONE_SPEC.replace("/images", ", beside: {{mask: masks}}") + (
    f"  mask: {{{{kind: mask, image: image, classes: {MASKED}, ignore: {OUTLINE}}}}}\n"
)
TEXT_SPEC = """\
name: documents
source: {{format: jsonl, path: {path}}}
key: id
splits: {splits}
features:
  text: {{kind: text, vocabulary: 4000}}
  language: {{kind: category}}
label: language
"""
TOKENS_SPEC = """\
name: documents
source: {{format: jsonl, path: {path}}}
key: id
splits: {splits}
features:
  text: {{kind: text, tokenizer: huggingface, model: bpe-tokenizer.json}}
"""
SPLITS = "{train: 80, test: 20}"
ONLY_TRAIN = "{train: 100}"  # a single row is in the train split


@dataclass(frozen=True)
class Inputs:
    """Where the inputs lie, how large they are and what the documents are made of."""

    folder: Path
    scale: float = 1.0
    source: Path | None = None
    """A JSON Lines file to repeat; None: documents are generated."""

    def scaled(self, count: int) -> int:
        """Gives a count at this scale, at least 1."""
        return max(1, round(count * self.scale))

    def photos(self, count: int, kind: str = "photos") -> Path:
        """Makes photos in class folders: `photos` without profiles, `profiles` as people have them."""
        profiles = PROFILES if kind == "profiles" else [None]
        return self._once(f"{kind}-{count}", lambda path: write_photos(path, count, profiles=profiles))

    def documents(self, count: int | None = None, size: int | None = None) -> Path:
        """A JSON Lines file of `count` lines, or of at least `size` bytes."""
        origin = self.source.stem if self.source else "generated"
        amount = f"{count}" if size is None else f"{size}-bytes"
        return self._once(
            f"documents-{origin}-{amount}.jsonl", lambda path: write_documents(path, self.source, count, size)
        )

    def masked(self, count: int) -> Path:
        """Makes photos beside masks of the same names."""
        return self._once(f"masked-{count}", lambda path: write_masked(path, count))

    def masked_specs(self, folder: Path) -> tuple[Path, Path]:
        """The specs of photos beside masks: of both, and of the photos alone."""
        return self._spec(folder, MASKED_SPEC, False), self._spec(folder, ALONE_SPEC, False, "-alone")

    def image_spec(self, photos: Path) -> Path:
        """The spec of a folder of photos."""
        return self._spec(photos, IMAGE_SPEC, photos.name == "photos-1")

    def text_spec(self, documents: Path) -> Path:
        """The spec of a file of documents."""
        return self._spec(documents, TEXT_SPEC, documents.stem.endswith("-1"))

    def tokens_spec(self, documents: Path) -> Path:
        """The spec of a file of documents for a model's own tokenizer."""
        return self._spec(documents, TOKENS_SPEC, documents.stem.endswith("-1"))

    def tokenizer(self, documents: Path) -> Path:
        """A byte-level BPE of 32,000 pieces, trained on some documents."""
        return self._once("bpe-tokenizer.json", lambda path: write_tokenizer(path, documents))

    def _spec(self, data: Path, template: str, single: bool, suffix: str = "") -> Path:
        path = self.folder / f"{data.stem}{suffix}.yaml"
        path.write_text(template.format(path=data.name, splits=ONLY_TRAIN if single else SPLITS), encoding="utf-8")
        return path

    def _once(self, name: str, write: Callable[[Path], None]) -> Path:
        """Makes an input under another name first, so that a half-made one is never used."""
        path, partial = self.folder / name, self.folder / f"{name}.partial"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(partial, ignore_errors=True)
            write(partial)
            os.replace(partial, path)
        return path
