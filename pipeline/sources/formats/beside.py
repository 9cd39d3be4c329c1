"""Files beside a folder's images, such as masks: they pair by name.

`masks/*` is the file of an image's name in the folder `masks`, which takes the place of any of the image's folders;
`*_mask` is the one with this ending of its name. `masks` alone means `masks/*`.

>>> Pattern.of("masks").key("train/masks/1.png"), Pattern.of("*_mask").key("1_mask.png")
('train/1', '1')
>>> Pattern.of("masks").find({"train/1": FileInfo("train/masks/1.png", 9, 0.0)}, "train/images/1.jpg").path
'train/masks/1.png'
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

from recordmill.pipeline.sources.batches import pack
from recordmill.pipeline.sources.files import FileInfo, FileList
from recordmill.pipeline.sources.paths import is_image, note
from recordmill.pipeline.sources.source_reader import WholeFiles

ARRAY = ".npy"


class Pattern(NamedTuple):
    """The folder of files, and what is before and after an image's name in theirs."""

    folder: Sequence[str]
    before: str
    after: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Reads `masks`, `masks/*` or `*_mask`."""
        folder, _, name = (text if "*" in text else f"{text}/*").rpartition("/")
        before, _, after = name.partition("*")
        return cls(folder.split("/") if folder else [], before, after)

    def key(self, path: str) -> str | None:
        """Returns the path of a file's image, without folder and ending; None for other files."""
        *folders, name = path.split("/")
        stem, count = posixpath.splitext(name)[0], len(self.folder)
        places = [place for place in range(len(folders) + 1) if folders[place : place + count] == [*self.folder]]
        is_named = stem.startswith(self.before) and stem.endswith(self.after)
        if not places or not is_named or len(stem) <= len(self.before) + len(self.after):
            return None
        image = stem[len(self.before) : len(stem) - len(self.after)]
        return "/".join([*folders[: places[0]], *folders[places[0] + count :], image])

    def find(self, files: Mapping[str, FileInfo], image: str) -> FileInfo | None:
        """Finds the file of an image among those by key."""
        *folders, name = posixpath.splitext(image)[0].split("/")
        ways = [folders]
        if self.folder:
            ways += [[*folders[:place], *folders[place + 1 :]] for place in range(len(folders))]
        return next((files[key] for way in ways if (key := "/".join([*way, name])) in files), None)


@dataclass(frozen=True)
class Beside:
    """Files beside images by column: each image's file, or None; and notes about all columns."""

    columns: Mapping[str, Sequence[FileInfo | None]]
    notes: Sequence[str] = ()

    @classmethod
    def pair(cls, found: Sequence[FileInfo], given: Mapping[str, str]) -> tuple[FileList, FileList, Self]:
        """Splits files into images, with those beside them, and others."""
        patterns = {column: Pattern.of(text) for column, text in given.items()}
        keyed = {column: dict[str, FileInfo]() for column in patterns}
        images, others = FileList(), FileList()
        for file in found:
            can_be = is_image(file.path) or file.path.endswith(ARRAY)
            keys = [(name, key) for name, each in patterns.items() if can_be and (key := each.key(file.path))]
            for name, key in keys[:1]:
                keyed[name].setdefault(key, file)
            if not keys or keyed[keys[0][0]][keys[0][1]] is not file:
                (images if is_image(file.path) and not keys else others).append(file)
        columns, notes = {}, list[str]()
        for name, pattern in patterns.items():
            files = [pattern.find(keyed[name], image.path) for image in images]
            alone = sorted({file.path for file in keyed[name].values()} - {file.path for file in files if file})
            notes += [f"images without a file of '{name}': {files.count(None):,}"] if None in files else []
            notes += note(f"files of '{name}' without an image, left out", alone)
            columns[name] = files
        return images, others, cls(columns, notes)

    def asked(self, names: Collection[str]) -> "Beside":
        """Keeps some columns."""
        return Beside({name: files for name, files in self.columns.items() if name in names})

    def part(self, images: slice) -> "Beside":
        """Returns the files of some images."""
        return Beside({name: files[images] for name, files in self.columns.items()})

    def files(self) -> Iterator[FileInfo]:
        """Yields all files."""
        return filter(None, chain.from_iterable(self.columns.values()))

    def packed(self) -> dict[str, WholeFiles]:
        """Packs each column's paths, empty without a file."""
        packed = {name: pack([file.path if file else "" for file in files]) for name, files in self.columns.items()}
        return {name: WholeFiles(each) for name, each in packed.items()}
