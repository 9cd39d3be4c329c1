"""The keys of a block's rows: columns of theirs, the content of an image, or the source's own. Needs no TensorFlow."""

from collections.abc import Callable

import pyarrow as pa

from recordmill.pipeline.build.context.row_schema import RowSchema
from recordmill.pipeline.dataset.placement import content_digest, join_key
from recordmill.pipeline.sources.columns import ColumnType
from recordmill.pipeline.sources.faults import Fault, Faults
from recordmill.pipeline.sources.images import parse
from recordmill.pipeline.sources.source_reader import Chunk
from recordmill.transforms.contract.image_header import ImageError

ReadImage = Callable[[int, bytes], bytes]
"""Returns the bytes of an image by its source and its reference. Raises OSError or ImageError."""


class RowKeys:
    """Makes the keys of one block's rows, with their faults, by row."""

    def __init__(self, table: pa.Table, chunk: Chunk, schema: RowSchema, read_image: ReadImage | None) -> None:
        self._table, self._chunk, self._schema, self._read_image = table, chunk, schema, read_image
        self.faults: Faults = {}
        is_default = schema.key is None and schema.content_key is None
        self._prefix = schema.key_prefixes[chunk.source] if is_default and schema.key_prefixes else b""

    def keys(self) -> list[bytes | None]:
        """Returns each row's key; None for a row at fault."""
        schema = self._schema
        if schema.content_key is not None:
            column = schema.content_key
            keys = [content_digest(value) for value in self.values(column, column, self._image)]
        elif schema.key is None:
            return [self._prefix + key for key in self._table["@key"].to_pylist()]
        elif len(schema.key) == 1:
            keys = self.values(schema.key[0], None, self.image_name)
        else:
            columns = [self.values(name, None, self.image_name) for name in schema.key]
            keys = [join_key([part.decode() for part in parts]) for parts in zip(*columns, strict=True)]
        return [None if row in self.faults else key for row, key in enumerate(keys)]

    def values(self, name: str, at_fault: str | None, of_image: Callable[[bytes], bytes]) -> list[bytes]:
        """Returns a column as parts of keys; an image that cannot be read is a fault, of the column `at_fault`."""
        column = self._table[name]
        if self._schema.columns[name].type is not ColumnType.IMAGE:
            return column.cast(pa.string()).cast(pa.binary()).to_pylist()
        values = list[bytes]()
        for row, reference in enumerate(column.to_pylist()):
            try:
                values.append(of_image(reference))
            except ImageError as error:
                values.append(b"")
                self.faults.setdefault(row, Fault(error.reason, error.message, at_fault, error.path))
        return values

    def _image(self, reference: bytes) -> bytes:
        """Returns an image's bytes."""
        return b"" if self._read_image is None else self._read_image(self._chunk.source, reference)

    def image_name(self, reference: bytes) -> bytes:
        """Returns an image's path where it is a file of its own, else the digest of its bytes."""
        parsed = parse(reference)
        if parsed.data is None and parsed.length is None:
            return parsed.path.encode()
        return content_digest(parsed.data or self._image(reference))
