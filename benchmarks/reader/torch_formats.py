"""Writes the photos for the peers that live with PyTorch, each with its own writer.

python benchmarks/reader/torch_formats.py bench-data/reader/images
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import litdata
import streaming
from peer_rows import Photo, read_photos, write_peers
from PIL import Image

CHUNK_BYTES = "64MB"  # what Streaming and LitData take by default


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


PHOTOS: dict[str, Callable[[Path, Any], None]] = {"mds": photos_mds, "litdata": photos_litdata}

if __name__ == "__main__":
    write_peers(Path(sys.argv[1]), PHOTOS, read_photos(Path(sys.argv[1])))
