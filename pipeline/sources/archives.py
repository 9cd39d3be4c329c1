"""Files of records that hold the images' bytes themselves, such as TFRecord and tar files."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, TypeVar

from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.table import Table

IMAGES_CHUNK_BYTES = 64 << 20  # 64 MiB: of records that hold images, 8 MiB would be a handful
FILES_AT_ONCE = 8  # of files far away it is the waiting that takes time
Result = TypeVar("Result")


class Archives(Table):
    """Files of records that hold their images."""

    compressed: ClassVar[bool] = False  # their own names say how they are compressed
    images: None = None
    """None: images lie in the records."""

    def look_at(
        self,
        look: Callable[[Files, str, int, FileInfo], Result],
        files: Files,
        root: str,
        inputs: list[FileInfo],
        columns: Columns,
        chunk_bytes: int,
    ) -> list[Result]:
        """Looks at all files, several at once, to cut them into chunks of `chunk_bytes`, or larger ones of images."""
        if any(column.type is ColumnType.IMAGE for column in columns.values()):
            chunk_bytes = max(chunk_bytes, IMAGES_CHUNK_BYTES)
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            return list(pool.map(lambda file: look(files, root, chunk_bytes, file), inputs))

    def _image_files(self, files: Files, columns: Columns) -> list[FileInfo]:
        return []
