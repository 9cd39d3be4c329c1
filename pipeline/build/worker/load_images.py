"""Loads the images of keyed rows, in batches of so many bytes as go through the transform graph at once."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from recordmill.pipeline.build.context.build_context import BuildContext
from recordmill.pipeline.build.context.rejects import reject_row
from recordmill.pipeline.build.images.read import ImageReader, Loaded, kept, perceptual_hash_of
from recordmill.pipeline.build.worker.batch import Batch, ImageBytes
from recordmill.pipeline.sources.faults import Fault, Reject
from recordmill.transforms.contract.image_header import ImageError
from recordmill.transforms.contract.kinds.image import ImageOptions

ROW_BYTES = 512 << 20  # 512 MiB: the most that the images of one row may have together
PART_BYTES = 8 << 20  # 8 MiB: a batch ends with the image that reaches it; a thread holds several times as much


class ImageLoader:
    """Loads the images of keyed rows; may be called from several threads."""

    def __init__(self, context: BuildContext, reader: ImageReader) -> None:
        self._reader = reader
        self._images = context.images()
        self._columns = context.schema.features
        is_hashed = context.duplicates.action == "keep"  # otherwise the pass over the contents did it
        self._hashed = context.hashed_images() if is_hashed else []

    def batches(self, rows: pa.Table) -> Iterator[Batch]:
        """Yields the rows with their images, in order; several batches where the images are many bytes."""
        if not self._images:
            yield Batch(rows, {}, {}, {}, {}, 0)
            return
        while rows.num_rows:
            loaded, taken = self._load_first(rows)
            yield loaded
            rows = rows.slice(taken)

    def _load_first(self, rows: pa.Table) -> tuple[Batch, int]:
        """Loads the images of the first rows, up to about `PART_BYTES`; returns also how many rows it took."""
        images: dict[str, list[ImageBytes]] = {name: [] for name in self._images}
        files: dict[str, list[bytes]] = {name: [] for name in self._images}
        looks: dict[str, list[bytes]] = {name: [] for name in self._hashed}
        whole = dict[str, bytes]()
        good, rejects, transcoded, size, needs = list[bool](), list[Reject](), Counter[str](), 0, 0
        columns = [rows[name].to_pylist() for name in ("@source", *self._images)]
        for row, (source, *references) in enumerate(zip(*columns, strict=True)):
            loaded = self._load_row(source, references)
            good.append(not isinstance(loaded, Fault))
            if isinstance(loaded, Fault):
                rejects.append(reject_row(rows, row, loaded))
                continue
            for reference, (name, parts) in zip(references, loaded.items(), strict=True):
                data = [part.data for part in parts]
                images[name].append(data if isinstance(reference, list) else b"".join(data))
                digests = [hashlib.sha256(part.source).digest() for part in parts]
                files[name].append(b"".join(digests))
                whole.update({part.file: digest for part, digest in zip(parts, digests, strict=True) if part.file})
                if name in looks:
                    looks[name].append(perceptual_hash_of(parts, self._images[name].max_pixels))
                transcoded.update(f"{name} {part.transcoded}" for part in parts if part.transcoded)
                size, needs = size + sum(map(len, data)), max(needs, *(part.needs for part in parts), 0)
            if size >= PART_BYTES:
                break
        loaded_rows = rows.slice(0, len(good)).filter(pa.array(np.array(good)))
        return Batch(loaded_rows, images, files, whole, looks, needs + 2 * size, rejects, transcoded), len(good)

    def _load_row(self, source: int, references: Sequence[bytes | list[bytes]]) -> dict[str, list[Loaded]] | Fault:
        """Loads a row's images by feature; returns the fault of a row whose image cannot be had."""
        loaded = {}
        for reference, (name, options) in zip(references, self._images.items(), strict=True):
            try:
                loaded[name] = self._load(source, reference, options)
            except ImageError as error:
                return Fault(error.reason, error.message, self._columns[name], error.path)
        return loaded

    def _load(self, source: int, references: bytes | list[bytes], options: ImageOptions) -> list[Loaded]:
        """Loads a feature's images of one row: one or none, or any number where the row has a list."""
        loaded, size = list[Loaded](), 0
        for reference in kept(references, options):
            loaded.append(self._reader.load(source, reference, options))
            size += len(loaded[-1].data) + (len(loaded[-1].source) if loaded[-1].transcoded else 0)
            if len(loaded) > 1 and size > ROW_BYTES:
                raise ImageError("too_large", f"the row's images have more than {ROW_BYTES >> 20} MiB together")
        return loaded
