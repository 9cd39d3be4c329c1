"""The samples of a WebDataset's tar file: members one after another with the same name up to its first dot.

The rule is WebDataset's own: of `train/0001.seg.png` the key is `train/0001` and the extension `seg.png`, in small
letters. What has no such name, such as `README` and `.DS_Store`, is no part of a sample, and neither is what is no
regular file, such as a link.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from recordmill.pipeline.sources.webdataset.tar_members import Tar

METADATA = re.compile("__[^/]*__($|/)")  # names that WebDataset keeps for itself
MAX_DATA_BYTES = 64 << 20  # 64 MiB, as of a line


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a sample."""

    offset: int
    size: int
    data: bytes | None = None
    """Its bytes, where they were asked for and are not too many."""


@dataclass
class Sample:
    """Members of one name."""

    key: str
    start: int
    """The byte where its first member's header begins."""
    members: dict[str, Member] = field(default_factory=dict)
    """By extension; of two of one extension the first."""
    twice: str | None = None
    """An extension that two members have."""
    objects: dict[str, Any] = field(default_factory=dict)
    """The contents of members, by extension, once they are parsed."""


def split_name(name: str) -> tuple[str, str] | None:
    """Splits a member's name into its key and its extension; None where it is no part of a sample.

    >>> split_name("./train/0001.SEG.png")
    ('train/0001', 'seg.png')
    """
    while name.startswith("./"):
        name = name[2:]
    folder, slash, base = name.rpartition("/")
    stem, _, extension = base.partition(".")
    if not stem or not extension or METADATA.match(name):
        return None
    return folder + slash + stem, extension.lower()


def samples(tar: Tar, read: Collection[str], left_out: Callable[[str], None]) -> Iterator[Sample]:
    """Yields the samples of a tar file.

    Args:
        tar: the file, at a member's header.
        read: the extensions of which the bytes are wanted, too.
        left_out: is called with the names of the members that are no part of a sample, folders aside.

    Raises:
        DamagedTarError: the file is damaged or cut off; the sample that it happened in is not given.
        OSError: the file cannot be read.
    """
    sample: Sample | None = None
    for member in tar:
        named = split_name(member.name) if member.isreg() and not member.issparse() else None
        if named is None:
            if not member.isdir():
                left_out(member.name)
            continue
        key, extension = named
        if sample is None or key != sample.key:
            if sample is not None:
                yield sample
            sample = Sample(key, member.offset)
        if extension in sample.members:
            sample.twice = extension
            continue
        data = tar.read(member) if extension in read and member.size <= MAX_DATA_BYTES else None
        sample.members[extension] = Member(member.offset_data, member.size, data)
    if sample is not None:
        yield sample
