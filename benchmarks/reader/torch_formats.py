"""Writes a task's data for the peers that live with PyTorch, each with its own writer.

python benchmarks/reader/torch_formats.py images bench-data/reader/images
"""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import litdata
import streaming
import torch
import webdataset as wds
from peer_rows import SHARDS, Documents, Photo, read_photos, write_peers
from PIL import Image

CHUNK_BYTES = "64MB"  # what Streaming and LitData take by default
CHUNK_TOKENS = 8 << 20  # 64 MB of int64

Writer = Callable[[Path, Any], None]


def photos_mds(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes MDS shards; the file of a picture that was opened is taken as it is."""
    with streaming.MDSWriter(out=str(folder), columns={"image": "jpeg", "label": "int"}) as writer:
        for path, label in photos:
            writer.write({"image": Image.open(path), "label": label})


def litdata_photo(photo: Photo) -> dict[str, Any]:
    """Makes a row of LitData; the file is taken as it is."""
    path, label = photo
    return {"image": litdata.Image(path=str(path)), "label": label}


def photos_litdata(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes LitData's chunks."""
    litdata.optimize(litdata_photo, list(photos), str(folder), chunk_bytes=CHUNK_BYTES, num_workers=2)


def photos_webdataset(folder: Path, photos: Sequence[Photo]) -> None:
    """Writes tar files."""
    for shard in range(SHARDS):
        with wds.TarWriter(str(folder / f"{shard:05d}.tar")) as writer:
            for path, label in photos[shard::SHARDS]:
                writer.write({"__key__": path.stem, "jpg": path.read_bytes(), "cls": label})


def documents_mds(folder: Path, documents: Documents) -> None:
    """Writes MDS shards."""
    with streaming.MDSWriter(out=str(folder), columns={"text": "ndarray:int64", "label": "int"}) as writer:
        for ids, label in documents.rows():
            writer.write({"text": ids, "label": label})


def litdata_rows(documents: Documents, shard: int) -> Any:
    """Gives the rows of one share."""
    for ids, label in documents.rows(shard, SHARDS):
        yield {"text": torch.from_numpy(ids.copy()), "label": label}


def litdata_tokens(documents: Documents, shard: int) -> Any:
    """Gives the documents of one share, without labels."""
    for ids, _ in documents.rows(shard, SHARDS):
        yield torch.from_numpy(ids.copy())


def documents_litdata(folder: Path, documents: Documents) -> None:
    """Writes LitData's chunks of documents."""
    rows = partial(litdata_rows, documents)
    litdata.optimize(rows, list(range(SHARDS)), str(folder), chunk_bytes=CHUNK_BYTES, num_workers=2)


def documents_litdata_tokens(folder: Path, documents: Documents) -> None:
    """Writes LitData's stream of tokens, one document after another, as its guide to pre-training does."""
    rows, loader = partial(litdata_tokens, documents), litdata.TokensLoader()
    litdata.optimize(rows, list(range(SHARDS)), str(folder), chunk_size=CHUNK_TOKENS, num_workers=2, item_loader=loader)


def documents_hugging_face(folder: Path, documents: Documents) -> None:
    """Writes Arrow files of Hugging Face's datasets."""
    text, label = zip(*documents.rows(), strict=True)
    datasets.Dataset.from_dict({"text": text, "label": label}).save_to_disk(str(folder), num_shards=SHARDS)


PHOTOS: dict[str, Writer] = {"mds": photos_mds, "litdata": photos_litdata, "webdataset": photos_webdataset}
DOCUMENTS: dict[str, Writer] = {
    "mds": documents_mds,
    "litdata": documents_litdata,
    "litdata_tokens": documents_litdata_tokens,
    "hugging_face": documents_hugging_face,
}


def main(task: str, folder: Path) -> None:
    """Writes what is not there yet."""
    if task.startswith("images"):
        write_peers(folder, PHOTOS, read_photos(folder))
    if task == "text":
        write_peers(folder, DOCUMENTS, Documents.load(folder / "arrays"))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
