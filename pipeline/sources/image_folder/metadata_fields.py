"""Which fields of a folder's metadata are paths of pictures, and which columns come of them.

>>> fields = PictureFields.of(["file_name", "depth_file_name", "frames_file_names", "label"])
>>> fields.columns
{'image': 'file_name', 'depth': 'depth_file_name', 'frames': 'frames_file_names'}
>>> fields.of_path
['image', 'file_name', 'split']
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from recordmill.pipeline.sources.columns import Column, Columns, ColumnType
from recordmill.pipeline.sources.image_folder.image_paths import FILE_NAME, IMAGE, LABEL, OF_PATH, SPLIT


def picture_fields(names: Iterable[str]) -> dict[str, str]:
    """The columns that are pictures, and the fields that hold their paths, among a metadata's columns."""
    found = {}
    for name in names:
        for ending, whole in ((FILE_NAME, IMAGE), (f"{FILE_NAME}s", f"{IMAGE}s")):
            if name == ending:
                found[whole] = name
            elif name.endswith(f"_{ending}") and "." not in name:
                found[name.removesuffix(f"_{ending}")] = name
    return found


@dataclass(frozen=True)
class PictureFields:
    """The fields of pictures' paths, of all metadata files of a folder together."""

    columns: Mapping[str, str]
    """The fields by the columns that are the pictures."""
    others: tuple[str, ...]
    """The columns `label` and `split`, where the metadata has them itself."""

    @classmethod
    def of(cls, names: Iterable[str]) -> "PictureFields":
        """Finds the fields among a metadata's columns, by the names that Hugging Face gives them."""
        names = list(names)
        return cls(picture_fields(names), tuple(name for name in (LABEL, SPLIT) if name in names))

    @property
    def fields(self) -> list[str]:
        """All fields of paths."""
        return list(self.columns.values())

    @property
    def mains(self) -> list[str]:
        """The fields that a row is known by: `file_name`, or all where there is none."""
        return [FILE_NAME] if FILE_NAME in self.fields else sorted(self.fields)

    @property
    def of_path(self) -> list[str]:
        """The columns that come of the path in `file_name`."""
        return [name for name in OF_PATH if name not in self.others] if FILE_NAME in self.fields else []

    def names(self, metadata: Iterable[str]) -> list[str]:
        """All columns, of a metadata that has these."""
        return list(dict.fromkeys([*metadata, *self.columns, *self.of_path]))

    def field(self, name: str) -> str:
        """The field that a column is read of."""
        return self.columns.get(name, name)

    def references(self) -> dict[str, Column]:
        """What is asked of a metadata to get all references to pictures."""
        return {field: _picture(field, optional=True) for field in self.fields}

    def asked(self, columns: Columns) -> dict[str, Column]:
        """What is asked of a metadata file: references to pictures, and the columns that do not come of a path."""
        optional = {field: field != FILE_NAME for field in self.mains}
        for name, column in columns.items():
            field = self.field(name)
            if field in self.fields:
                optional[field] = optional.get(field, True) and column.optional
        pictures = {field: _picture(field, optional=may_lack) for field, may_lack in optional.items()}
        taken = {*self.columns, *self.fields, *self.of_path}
        return pictures | {name: column for name, column in columns.items() if name not in taken}

    def is_path(self, key: Sequence[str] | None) -> bool:
        """Whether a key, by default None, is the picture's path."""
        return FILE_NAME in self.fields and (key is None or list(map(self.field, key)) == [FILE_NAME])

    def asked_key(self, key: Sequence[str] | None, asked: Columns) -> Sequence[str]:
        """What is asked of a metadata file as key, which its rejects are named by; none where it is not known there."""
        if self.is_path(key):
            return (FILE_NAME,)
        known = [name for name in key or () if name in asked and asked[name].type is not ColumnType.IMAGE]
        return known if known == list(key or ()) else ()


def _picture(field: str, *, optional: bool) -> Column:
    return Column(ColumnType.IMAGE, many=field.endswith(f"{FILE_NAME}s"), optional=optional)
