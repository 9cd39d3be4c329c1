"""Files of records that hold the images' bytes themselves, such as TFRecord and tar files."""

from typing import ClassVar

from recordmill.pipeline.sources.base import FileInfo, Files
from recordmill.pipeline.sources.columns import Columns, ColumnType
from recordmill.pipeline.sources.table import Table

IMAGES_CHUNK_BYTES = 64 << 20  # 64 MiB: of records that hold images, 8 MiB would be a handful


class Archives(Table):
    """Files of records that hold their images."""

    compressed: ClassVar[bool] = False  # their own names say how they are compressed
    images: None = None
    """None: images lie in the records."""

    def chunk_bytes(self, columns: Columns, wanted: int) -> int:
        """Gives the bytes of a chunk: those wanted, or more where it has images."""
        has_images = any(column.type is ColumnType.IMAGE for column in columns.values())
        return max(wanted, IMAGES_CHUNK_BYTES) if has_images else wanted

    def _image_files(self, files: Files, columns: Columns) -> list[FileInfo]:
        return []
