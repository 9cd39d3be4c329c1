"""The files of a version: all there that the manifest lists, with their bytes and digests, and no others.

>>> files = VersionFiles(Path("out/emoji/versions/20261120T120000Z-4f1c9a2e"))  # doctest: +SKIP
>>> check_file(files, "dataset_info.json", 312, "9f86d0…").problems             # doctest: +SKIP
[]
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, cast

from recordmill.pipeline.dataset.manifest import MANIFEST_FILE, DatasetError, Manifest
from recordmill.pipeline.dataset.safe_paths import check_place, locate, open_file
from recordmill.pipeline.reader.records.remote_path import RemotePath, file_system, unreadable
from recordmill.pipeline.verify.findings import Findings

BLOCK = 4 << 20  # 4 MiB: what one thread reads at a time, from a disk or an object store


class VersionFiles:
    """A version's folder, on this machine or at a URL."""

    def __init__(self, folder: Path | RemotePath) -> None:
        self.folder = folder

    def open(self, path: str) -> tuple[BinaryIO, int]:
        """Opens a file for reading; gives it with its size in bytes.

        Raises:
            DatasetError: it is missing, cannot be read, is no plain file, or is a link that leaves the folder.
        """
        if isinstance(self.folder, RemotePath):
            check_place(str(self.folder), path)
            return self._open_remote(str(self.folder / path))
        try:
            file = open_file(locate(str(self.folder), path))
        except FileNotFoundError:
            raise DatasetError("the file is missing") from None
        except OSError as error:
            raise DatasetError(f"the file cannot be read: {error.strerror}") from None
        return file, os.fstat(file.fileno()).st_size

    def _open_remote(self, url: str) -> tuple[BinaryIO, int]:
        store = file_system(url)
        try:
            size = int(store.info(url)["size"])
            return cast(BinaryIO, store.open(url, "rb", block_size=BLOCK, cache_type="readahead")), size
        except Exception as error:  # a store's library has its own errors beside OSError
            raise unreadable(url, error) from None

    def read(self, path: str) -> bytes:
        """Gives a whole file. Raises: DatasetError as `open`."""
        file, _ = self.open(path)
        with file:
            try:
                return file.read()
            except OSError as error:
                raise DatasetError(f"the file cannot be read: {error.strerror or error}") from None

    def listing(self) -> list[str]:
        """Gives all files by their paths in the folder, in order. Raises: DatasetError."""
        if isinstance(self.folder, RemotePath):
            url = str(self.folder)
            store = file_system(url)
            try:
                root = store._strip_protocol(url)  # the part of it that the listing begins with
                return sorted(path[len(root) :].lstrip("/") for path in store.find(url))
            except Exception as error:
                raise unreadable(url, error) from None
        found = []
        for root, folders, names in os.walk(self.folder):
            links = [name for name in folders if os.path.islink(os.path.join(root, name))]  # which are not followed
            found += [os.path.relpath(os.path.join(root, name), self.folder) for name in (*names, *links)]
        return sorted(found)


def check_file(files: VersionFiles, path: str, bytes_: int, sha256: str) -> Findings:
    """Reads a file and compares its size and digest."""
    found = Findings()
    try:
        file, size = files.open(path)
        with file:
            if size != bytes_:
                found.tell(path, f"the file holds {size:,} bytes, expected {bytes_:,}")
            else:
                check_digest(found, path, _sha256(file), sha256)
            found.checked.update(files=1, bytes=size)
    except DatasetError as error:
        found.tell(path, str(error))
    except OSError as error:
        found.tell(path, f"the file cannot be read: {error.strerror or error}")
    return found


def _sha256(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()


def check_digest(found: Findings, path: str, digest: str, expected: str) -> None:
    """Compares two digests in hex."""
    if digest != expected:
        found.tell(path, f"the SHA-256 is {digest}, expected {expected}")


def listed_files(manifest: Manifest) -> dict[str, Mapping[str, Any]]:
    """The files beside the shards with `bytes` and `sha256`; of an old manifest only those that it describes."""
    return dict(manifest.files) or {file["file"]: file for file in manifest.rejects.get("files", [])}


def stray_files(files: VersionFiles, manifest: Manifest) -> Iterable[str]:
    """The files that the manifest does not list; none where it is of a time when manifests listed only shards."""
    if not manifest.files:
        return []
    shards = {shard.file for split in manifest.splits.values() for shard in split.shards}
    known = shards | {MANIFEST_FILE} | manifest.files.keys()
    return [path for path in files.listing() if path not in known]
