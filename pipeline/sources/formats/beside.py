"""Files beside a folder's images, such as masks: they pair by name.

A pattern says where files lie and what their names have around the part in common: `masks/*` is the folder `masks` in
an image's path, `*_mask` an ending of the name, `*_labels/*_L` both, of `train/1.png` the file `train_labels/1_L.png`.
`masks` alone means `masks/*`. The pattern of `image` says the same of the images; by default all others are images, and
any of their folders may stand for the file's.

>>> Pattern.of("masks").key("train/masks/1.png"), Pattern.of("*_labels/*_L").key("train_labels/1_L.png")
('train/1', 'train/1')
>>> Pattern.of("masks").find({"train/1": FileInfo("train/masks/1.png", 9, 0.0)}, "train/images/1").path
'train/masks/1.png'
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import NamedTuple, Self, TypeAlias

from recordmill.pipeline.sources.batches import pack
from recordmill.pipeline.sources.files import FileInfo, FileList
from recordmill.pipeline.sources.formats.image_fields import IMAGE
from recordmill.pipeline.sources.paths import image_test, may_be_image, note
from recordmill.pipeline.sources.source_reader import WholeFiles

Place: TypeAlias = Callable[[str], str | None]


class Pattern(NamedTuple):
    """The folders of files, and their names, each as an expression of the part in common."""

    folders: Sequence[re.Pattern[str]]
    name: re.Pattern[str]

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads `masks`, `masks/*`, `*_mask` or `*_labels/*_L`."""
        parts = (text if "*" in text else f"{text}/*").split("/")
        *folders, name = (re.compile(re.escape(part).replace(r"\*", "(.+)"), re.DOTALL) for part in parts)
        return cls(folders, name)

    def key(self, path: str) -> str | None:
        """Returns the path of a file's image, without what the pattern adds, and ending; None for other files."""
        *folders, name = posixpath.splitext(path)[0].split("/")
        named, count = self.name.fullmatch(name), len(self.folders)
        for place in range(len(folders) - count + 1 if named else 0):
            found = [each.fullmatch(part) for each, part in zip(self.folders, folders[place:], strict=False)]
            if named and all(found):
                kept = [part for each in found if each for part in each.groups()]
                return "/".join([*folders[:place], *kept, *folders[place + count :], named[1]])
        return None

    def find(self, files: Mapping[str, FileInfo], image: str) -> FileInfo | None:
        """Finds the file of an image's key among those by key."""
        *folders, name = image.split("/")
        ways = [folders]
        if self.folders:
            ways += [[*folders[:place], *folders[place + 1 :]] for place in range(len(folders))]
        return next((files[key] for way in ways if (key := "/".join([*way, name])) in files), None)


def image_place(beside: Mapping[str, str]) -> Place:
    """Returns a function that takes an image's path to its key: by the pattern of `image`, else without the ending."""
    return Pattern.of(beside.get(IMAGE, "*")).key


@dataclass(frozen=True)
class Beside:
    """Files beside images by column: each image's file, or None; and notes about all columns."""

    columns: Mapping[str, Sequence[FileInfo | None]]
    notes: Sequence[str] = ()

    @classmethod
    def pair(
        cls, found: Sequence[FileInfo], given: Mapping[str, str], takes: Callable[[str], bool] = bool
    ) -> tuple[FileList, FileList, Self]:
        """Splits files into images, with those beside them, and others; without the images that `takes` refuses."""
        patterns = {column: Pattern.of(text) for column, text in given.items() if column != IMAGE}
        place = image_place(given)
        keyed = {column: dict[str, FileInfo]() for column in patterns}
        rest, again = list[FileInfo](), list[FileInfo]()
        for file in found:
            can_be = may_be_image(file.path)
            keys = [(name, key) for name, each in patterns.items() if can_be and (key := each.key(file.path))]
            for name, key in keys[:1]:
                again += [file] if keyed[name].setdefault(key, file) is not file else []
            rest += [] if keys else [file]
        is_one = image_test(file.path for file in rest)
        is_row = [is_one(file.path) and bool(place(file.path)) for file in rest]
        images = FileList(compress(rest, is_row))
        others = FileList([*compress(rest, (not each for each in is_row)), *again])
        are_taken = [takes(image.path) for image in images]
        left = [image.path for image, is_taken in zip(images, are_taken, strict=True) if not is_taken]
        columns, notes = {}, note("images that the list lacks, left out", left)
        for name, pattern in patterns.items():
            files = [pattern.find(keyed[name], place(image.path) or "") for image in images]
            alone = sorted({file.path for file in keyed[name].values()} - {file.path for file in files if file})
            columns[name] = [*compress(files, are_taken)]
            without = [
                image.path for image, file in zip(compress(images, are_taken), columns[name], strict=True) if not file
            ]
            notes += note(f"images without a file of '{name}'", without)
            notes += note(f"files of '{name}' without an image, left out", alone)
        return FileList(compress(images, are_taken)), others, cls(columns, notes)

    def asked(self, names: Collection[str]) -> "Beside":
        """Keeps some columns."""
        return Beside({name: files for name, files in self.columns.items() if name in names})

    def part(self, images: slice) -> "Beside":
        """Returns the files of some images."""
        return Beside({name: files[images] for name, files in self.columns.items()})

    def paths(self, column: str) -> list[str]:
        """Lists a column's different paths."""
        return list(dict.fromkeys(file.path for file in self.columns.get(column, ()) if file))

    def files(self) -> Iterator[FileInfo]:
        """Yields all files."""
        return filter(None, chain.from_iterable(self.columns.values()))

    def packed(self) -> dict[str, WholeFiles]:
        """Packs each column's paths, empty without a file."""
        packed = {name: pack([file.path if file else "" for file in files]) for name, files in self.columns.items()}
        return {name: WholeFiles(each) for name, each in packed.items()}
