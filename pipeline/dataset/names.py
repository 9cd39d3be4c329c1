r"""Names that become files and folders: one rule for the spec and for manifests that may come from anywhere.

A dataset, a split and a feature have plain names, which are parts of file names. A version and a span have a folder. A
class may have any name, so its folder is only called after it.

>>> is_folder_name("2026-11-20"), is_folder_name("2026/11"), is_folder_name("..")
(True, False, False)
>>> safe_name("../etc/passwd"), safe_name("NUL.txt")
('_etc_passwd', '_NUL.txt')
"""

import re

from recordmill.pipeline.dataset.safe_paths import check_inner
from recordmill.pipeline.errors import DatasetError
from recordmill.pipeline.redaction import cut

NAME = r"[A-Za-z][A-Za-z0-9_]*"
MOST_CHARACTERS = 100
"""The longest name of a dataset, a split, a feature, a version or a span."""
DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d) *(\.|$)", re.IGNORECASE)
"""Names that Windows keeps for devices, in every folder and whatever follows a dot."""


def is_name(name: str) -> bool:
    """Whether a dataset, a split or a feature may have this name."""
    return len(name) <= MOST_CHARACTERS and re.fullmatch(NAME, name) is not None


def check_name(what: str, name: str) -> str:
    """Returns the name of a dataset, a split or a feature. Raises: DatasetError: nothing may have it."""
    if not is_name(name):
        rule = f"a letter, then letters, digits and underscores, {MOST_CHARACTERS} at most"
        raise DatasetError(f"{cut(repr(name))} is no name of a {what}: {rule}")
    return name


def is_folder_name(name: str) -> bool:
    """Whether a version or a span may have this name, which is a folder's, too."""
    try:
        check_inner(name[: MOST_CHARACTERS + 1])
    except DatasetError:
        return False
    return "/" not in name and not name.startswith(".") and len(name) <= MOST_CHARACTERS


def check_folder_name(what: str, name: str) -> str:
    """Returns the name of a version or a span. Raises: DatasetError: no folder may have it."""
    if not is_folder_name(name):
        rule = f"its name is that of one folder, of {MOST_CHARACTERS} plain characters at most, and begins with no dot"
        raise DatasetError(f"{cut(repr(name))} is no {what}: {rule}")
    return name


def safe_name(text: str) -> str:
    """Makes any text the name of one file or folder, of 200 bytes at most, that no file system and no glob misreads."""
    plain = re.sub(r"[^\w. -]+", "_", text).strip(". ")[:100]
    short = plain.encode()[:199].decode(errors="ignore") or "_"  # a name has 255 bytes at most, with what follows it
    return f"_{short}" if DEVICES.match(short) else short
