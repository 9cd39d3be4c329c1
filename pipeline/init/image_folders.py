"""Where the pictures lie that the rows of a table name: the option `images` of its source."""

import posixpath
from collections import Counter
from collections.abc import Iterator, Sequence

from recordmill.pipeline.init.column_sample import Sample
from recordmill.pipeline.init.guess_images import PICTURES, names_picture
from recordmill.pipeline.init.guess_kind import read
from recordmill.pipeline.sources.base import Files
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.globs import escape
from recordmill.pipeline.sources.paths import is_image, join
from recordmill.pipeline.sources.table import Table
from recordmill.pipeline.sources.typing.image_cells import DATA_URL

NAMING = ("csv", "tsv", "jsonl", "parquet")
"""The formats whose rows may name pictures."""


def images_folder(sample: Sample, files: Files) -> str | None:
    """The folder that the paths of pictures in a table are relative to, looked for below the source's root.

    None where that is the file's own, or there is none.
    """
    source = sample.sources[0]
    if not isinstance(source, Table) or source.format not in NAMING:
        return None
    root = source.root(files)
    pictures = [file.path[len(root) + 1 :] for file in files.match(f"{escape(root)}/**") if is_image(file.path)]
    if not pictures:
        return None
    own = {posixpath.dirname(file.path) for file in source.plan(sample.files, {}, 1 << 20).inputs}
    for name in sample.names:
        folders = Counter(_folders(_paths(sample, name), pictures))
        if folders:
            best = max(folders, key=lambda folder: (folders[folder], folder in own, folder))
            return None if best in own else join(root, best) if best else root
    return None


def _paths(sample: Sample, name: str) -> list[str]:
    """Some values of a column that are paths of pictures."""
    for many in (False, True):
        values = read(sample, name, ColumnType.TEXT, many=many).distinct
        paths = [value.strip() for value in values if names_picture(value) and not value.startswith(DATA_URL)]
        if paths:
            return paths[:PICTURES]
    return []


def _folders(paths: Sequence[str], pictures: Sequence[str]) -> Iterator[str]:
    """The folders that the paths may be relative to, one after another, each as often as it fits."""
    by_name: dict[str, list[str]] = {}
    for picture in pictures:
        by_name.setdefault(posixpath.basename(picture), []).append(picture)
    for path in paths:
        plain = posixpath.normpath(path)
        for picture in by_name.get(posixpath.basename(plain), ()):
            if picture == plain or picture.endswith(f"/{plain}"):
                yield picture[: -len(plain)].rstrip("/")
