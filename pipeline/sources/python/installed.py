"""Modules of installed packages: from the folders where pip puts them, not wherever the process happens to look.

The folder that a command is run in and `PYTHONPATH` are places where anybody's file may lie, under the name of a module
that is meant. A package that is installed to be edited counts, by its finder or its `.pth` file.

>>> where_from("json").endswith("/json/__init__.py"), is_installed("json")
(True, False)
"""

import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path


def is_installed(name: str) -> bool:
    """Whether the module that an import of `name` gives is of an installed package."""
    top = name.partition(".")[0]
    imported = _places(_imported(top))
    return bool(imported) and imported <= _places(_installed(top))


def where_from(name: str) -> str | None:
    """The place that an import of `name`'s package takes it from; None where there is no such package."""
    return min(_places(_imported(name.partition(".")[0])), default=None)


def _imported(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None


def _installed(top: str) -> ModuleSpec | None:
    """The module as it is found where Python's own finder looks in the folders of installed packages alone."""
    folders = list(dict.fromkeys(_folders()))
    for finder in sys.meta_path:
        spec = PathFinder.find_spec(top, folders) if finder is PathFinder else finder.find_spec(top, None)
        if spec is not None:
            return spec
    return None


def _folders() -> Iterator[str]:
    folders = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    for folder in [*folders, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]:
        yield folder
        for file in sorted(Path(folder).glob("*.pth")):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (os.path.join(folder, line) for line in lines if line and not line.startswith(("#", "import")))


def _places(spec: ModuleSpec | None) -> set[str]:
    """The file of a module, or the folders of a package without an `__init__.py`."""
    if spec is None:
        return set()
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return set(map(os.path.realpath, places))
