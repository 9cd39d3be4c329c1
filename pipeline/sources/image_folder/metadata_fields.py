"""The fields of a folder's metadata that are paths of images, and the columns that come of them.

`file_name` is an image's path, and so is `depth_file_name`, which is the column `depth`; `file_names` (the column
`images`) and `frames_file_names` are lists of paths. These are the names of Hugging Face's ImageFolder.

>>> fields = ImageFields.of(["file_name", "depth_file_name", "frames_file_names", "label"])
>>> fields.columns
{'image': 'file_name', 'depth': 'depth_file_name', 'frames': 'frames_file_names'}
>>> fields.of_path
['image', 'file_name', 'split']
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.image_folder.image_paths import FILE_NAME, IMAGE, LABEL, OF_PATH, SPLIT


@dataclass(frozen=True)
class ImageFields:
    """The fields of images' paths, of all metadata files of a folder together."""

    columns: Mapping[str, str]
    """The fields by the columns that are the images."""
    others: tuple[str, ...]
    """The columns `label` and `split`, where the metadata has them itself."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "ImageFields":
        """Finds the fields among a metadata's columns."""
        names, columns = list(names), {}
        for name in names:
            for ending, column in ((FILE_NAME, IMAGE), (f"{FILE_NAME}s", f"{IMAGE}s")):
                if name == ending:
                    columns[column] = name
                elif name.endswith(f"_{ending}") and "." not in name:
                    columns[name.removesuffix(f"_{ending}")] = name
        return cls(columns, tuple(name for name in (LABEL, SPLIT) if name in names))

    @property
    def fields(self) -> list[str]:
        """All fields of paths."""
        return list(self.columns.values())

    @property
    def mains(self) -> list[str]:
        """The fields that a row is known by: `file_name` if it is there, else all."""
        return [FILE_NAME] if FILE_NAME in self.fields else sorted(self.fields)

    @property
    def of_path(self) -> list[str]:
        """The columns that come of the path in `file_name`."""
        return [name for name in OF_PATH if name not in self.others] if FILE_NAME in self.fields else []

    def names(self, metadata: Iterable[str]) -> list[str]:
        """Lists all columns, of a metadata that has these."""
        return list(dict.fromkeys([*metadata, *self.columns, *self.of_path]))

    def field(self, name: str) -> str:
        """Gives the field that a column is read of."""
        return self.columns.get(name, name)

    def references(self) -> dict[str, Column]:
        """Gives the columns to ask of a metadata file for all references to images."""
        return {field: _image(field, optional=True) for field in self.fields}

    def asked(self, columns: Columns) -> dict[str, Column]:
        """Gives the columns to ask of a metadata file: references to images, and what does not come of a path."""
        optional = {field: field != FILE_NAME for field in self.mains}
        for name, column in columns.items():
            field = self.field(name)
            if field in self.fields:
                optional[field] = optional.get(field, True) and column.optional
        images = {field: _image(field, optional=may_lack) for field, may_lack in optional.items()}
        taken = {*self.columns, *self.fields, *self.of_path}
        return images | {name: column for name, column in columns.items() if name not in taken}

    def is_path(self, key: Sequence[str] | None) -> bool:
        """Whether a key, by default None, is the image's path."""
        return FILE_NAME in self.fields and (key is None or list(map(self.field, key)) == [FILE_NAME])

    def asked_key(self, key: Sequence[str] | None, asked: Columns) -> Sequence[str]:
        """Gives the key to ask of a metadata file, which its rejects are named by; empty where it lies elsewhere."""
        if self.is_path(key):
            return (FILE_NAME,)
        known = [name for name in key or () if name in asked and asked[name].type is not ColumnType.IMAGE]
        return known if known == list(key or ()) else ()


def _image(field: str, *, optional: bool) -> Column:
    return Column(ColumnType.IMAGE, many=field.endswith(f"{FILE_NAME}s"), optional=optional)
