"""The output folder: builds at work, published versions, and the pointer to the live one.

A version is put together in the build's folder and becomes visible by one rename; then `LATEST` is replaced. Nothing
that was published is ever changed or deleted here.
"""

import os
import shutil
from pathlib import Path

from pipeline.errors import UserError
from pipeline.manifest import (
    LATEST_FILE,
    MANIFEST_FILE,
    VERSIONS_FOLDER,
    DatasetError,
    Latest,
    Manifest,
    read_latest,
    read_manifest,
    version_folder,
)
from pipeline.reports import write_atomically
from pipeline.steps import FOLDERS

BUILDING_FOLDER = ".building"


class OutputError(UserError):
    """The output folder cannot be written; the message is one clear line for the user."""


def begin(output: str, build_key: str) -> str:
    """Makes the build's own folder, empty; gives its absolute path.

    Raises:
        OutputError: the folder cannot be made or written.
    """
    folder = Path(output).absolute() / BUILDING_FOLDER / build_key[:16]
    try:
        shutil.rmtree(folder, ignore_errors=True)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)
    except OSError as error:
        raise OutputError(f"the output {output} cannot be written: {error.strerror}: {error.filename}") from None
    return str(folder)


def check_output(output: str) -> None:
    """Refuses an output that is no local path.

    Raises:
        OutputError: it is a URL.
    """
    if ":/" in output:
        raise OutputError(f"the output {output} is a URL: this version writes to local folders; copy the version there")


def check_name(output: str, name: str) -> None:
    """Refuses to publish a dataset in another one's folder.

    Raises:
        OutputError: the live version is of a dataset of another name.
    """
    try:
        live = read_manifest(version_folder(output, read_latest(output).version)).name
    except DatasetError:
        return  # nothing is published
    if live != name:
        raise OutputError(
            f"the output {output} holds the dataset '{live}', and the spec's name is '{name}': use another"
        )


def find_version(output: str, build_key: str) -> Manifest | None:
    """The newest published version that this very build made, whole; None where there is none."""
    versions = Path(output) / VERSIONS_FOLDER
    for folder in sorted(versions.iterdir() if versions.is_dir() else [], reverse=True):
        if folder.name.endswith(build_key[:8]):
            try:
                manifest = read_manifest(folder)
            except DatasetError:
                continue
            if manifest.build_key == build_key and _is_whole(folder, manifest):
                return manifest
    return None


def _is_whole(folder: Path, manifest: Manifest) -> bool:
    """Whether every shard is there, of the size that the manifest gives."""
    shards = [shard for split in manifest.splits.values() for shard in split.shards]
    return all((folder / s.file).is_file() and (folder / s.file).stat().st_size == s.bytes for s in shards)


def live_version(output: str) -> str | None:
    """The name of the live version; None where nothing is published."""
    try:
        return read_latest(output).version
    except DatasetError:
        return None


def publish(output: str, assembled: str, manifest: Manifest) -> str:
    """Writes the manifest into an assembled version, makes it visible and live; gives its folder."""
    write_atomically(os.path.join(assembled, MANIFEST_FILE), manifest.to_text().encode())
    folder = version_folder(output, manifest.version)
    folder.parent.mkdir(parents=True, exist_ok=True)
    os.rename(assembled, folder)
    make_live(output, manifest.version)
    return str(folder)


def make_live(output: str, version: str) -> None:
    """Points `LATEST` to a version, by one atomic replacement."""
    try:
        sequence = read_latest(output).sequence + 1
    except DatasetError:
        sequence = 1
    write_atomically(os.path.join(output, LATEST_FILE), Latest(version, sequence).to_text().encode())


def finish(folder: str) -> None:
    """Removes a build's folder, and the folder of builds if it was the last."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        os.rmdir(os.path.dirname(folder))
    except OSError:
        return  # another build is at work
