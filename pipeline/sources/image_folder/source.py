"""A folder of images as a source, in the convention of Hugging Face's ImageFolder.

    source: {format: image_folder, path: images/}

With metadata files (`metadata.csv`, `.tsv`, `.jsonl`, `.parquet`) in the folder or in folders below it, their rows are
the rows: `pipeline.sources.image_folder.metadata`. Without them every image is a row, and files beside it may be its
captions: `pipeline.sources.image_folder.listing`.

The columns that come of an image's path: `image`; `file_name`, the path relative to the folder; `label`, the name of
the folder that it lies in; `split`, the name of the first folder. A metadata's own `label` and `split` come first. A
row's default key is the path in Unicode's composed form (NFC). Hidden files and folders are not looked at.
"""

import posixpath
from collections.abc import Iterator, Sequence, Set

from recordmill.pipeline.sources.base import Block, Chunk, FileInfo, Files, Plan, SourceError, SourceReader
from recordmill.pipeline.sources.columns import Columns
from recordmill.pipeline.sources.file_list import FileList
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.image_folder.captions import OBJECT_ENDING, TEXT_ENDING
from recordmill.pipeline.sources.image_folder.listing import Listing, plan_listing, read_listing
from recordmill.pipeline.sources.image_folder.metadata import (
    locate_row,
    metadata_files,
    plan_metadata,
    read_metadata,
)
from recordmill.pipeline.sources.options import ImageFolder
from recordmill.pipeline.sources.paths import is_image, planning

CAPTION_ENDINGS = (TEXT_ENDING, OBJECT_ENDING)
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".7z", ".rar")


class ImageFolderReader(SourceReader[ImageFolder]):
    """Reads a folder of images."""

    def root(self, files: Files) -> str:
        """The folder."""
        return self.source.path.rstrip("/")

    def plan_chunks(self, files: Files, columns: Columns, chunk_bytes: int) -> Plan:
        """Lists the images; where there is metadata, reads its paths. `rows` is exact.

        Raises:
            SourceError: there is no such folder, no image or no row in it, or an asked column is nowhere.
        """
        with planning(self.source.path):
            root, listed = self.root(files), self._listed(files)
            metadata = metadata_files(listed, root)
            if metadata:
                return plan_metadata(self.source.path, root, listed, metadata, files, columns, chunk_bytes)
            return plan_listing(self.source.path, root, listed, files, columns, chunk_bytes)

    def list_inputs(self, files: Files, columns: Columns) -> Sequence[FileInfo]:
        """Lists the images and the captions beside them; where there is metadata, which may name any, all files."""
        listed = self._listed(files)
        if metadata_files(listed, self.root(files)):
            return listed
        has_captions = any(file.path.endswith(CAPTION_ENDINGS) for file in listed)
        stems = {_stem(file.path) for file in listed if is_image(file.path)} if has_captions else frozenset[str]()
        return FileList(file for file in listed if is_image(file.path) or _is_caption(file.path, stems))

    def _listed(self, files: Files) -> FileList:
        """All files, with paths relative to the folder."""
        if not files.is_folder(self.source.path):
            raise SourceError(self._no_folder(files))
        root = self.root(files)
        below = files.match(f"{escape(root)}/**")
        return FileList(FileInfo(file.path[len(root) + 1 :], *file[1:]) for file in below)

    def _no_folder(self, files: Files) -> str:
        if not files.match(escape(self.source.path)):
            return f"{self.source.path}: no such folder"
        if self.source.path.lower().endswith(ARCHIVES):
            return f"{self.source.path} is an archive: unpack it, and give the folder"
        folder = posixpath.dirname(self.source.path) or "."
        return f"{self.source.path} is a file: give the folder that it lies in, `path: {folder}`"

    def read_chunk(self, chunk: Chunk, files: Files, columns: Columns, key: Sequence[str] | None) -> Iterator[Block]:
        """Reads a chunk's rows; the images themselves are not looked at.

        Raises:
            SourceError: the metadata file is damaged.
            OSError: it cannot be read any more, or the machine, the disk or the network failed.
        """
        read = read_listing if isinstance(chunk.work, Listing) else read_metadata
        return read(chunk, self.root(files), files, columns, key)

    def locate(self, chunk: Chunk, position: int) -> tuple[str, int | None]:
        """Gives the image of a listing, or the metadata file and the row inside the chunk as its format counts it."""
        if isinstance(chunk.work, Listing):
            return super().locate(chunk, position)
        return locate_row(chunk, self.source.path.rstrip("/"), position)


def _is_caption(path: str, stems: Set[str]) -> bool:
    """Whether a file lies beside an image: one of these paths without their endings."""
    return path.endswith(CAPTION_ENDINGS) and _stem(path) in stems


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]
