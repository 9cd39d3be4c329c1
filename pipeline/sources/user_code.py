"""A user's Python code beside the spec: finds it, sends it to workers, loads it, and names its line on failure.

A reference `module:function` names a module in the spec's folder or in an installed package. The module and its imports
from that folder travel as source, and our own finder imports them: nothing else in the folder enters a process, and no
file is written.

A package counts as installed in pip's folders, or by the finder or `.pth` file of an editable install. Any other place
is refused: the current folder or `PYTHONPATH` may hold anybody's file under the same name.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from recordmill.pipeline.errors import UserError, did_you_mean
from recordmill.pipeline.safe_text import HIDDEN, SHORTEST
from recordmill.pipeline.sources.options import REFERENCE

FAILURES = Exception, SystemExit  # what the user's code may raise; SystemExit would end a build without a word
_LOCK, _BEFORE = threading.Lock(), list[str]()
"""The working folders before each thread entered the user's code; threads share one working folder."""


def is_installed(name: str) -> bool:
    """Whether importing `name` would load an installed package."""
    top = name.partition(".")[0]
    imported = _places(_imported(top))
    folders = list(dict.fromkeys(_folders())) if imported else []
    for finder in sys.meta_path if imported else ():  # as Python does, but only in the folders of installed packages
        spec = PathFinder.find_spec(top, folders) if finder is PathFinder else finder.find_spec(top, None)
        if spec is not None:
            return imported <= _places(spec)
    return False


def _imported(top: str) -> ModuleSpec | None:
    with suppress(ImportError, ValueError):
        return importlib.util.find_spec(top)
    return None


def _folders() -> Iterator[str]:
    folders = [*site.getsitepackages(), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    for folder in [*folders, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]:
        yield folder
        for file in sorted(Path(folder).glob("*.pth")):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            yield from (os.path.join(folder, line) for line in lines if line and not line.startswith(("#", "import")))


def _places(spec: ModuleSpec | None) -> set[str]:
    """Returns a module's file, or the folders of a package without an `__init__.py`."""
    if spec is None:
        return set()
    return set(map(os.path.realpath, [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())))


class UserCodeError(UserError):
    """Raised if the user's code is missing or fails; the message says where."""


def load(reference: str) -> Callable[..., Any]:
    """Returns a reference's function, importing its module. Raises: UserCodeError: invalid, missing, or failing."""
    name, function = split_reference(reference)
    if _Finder.find_spec(name.partition(".")[0]) is None:
        _check_place(reference, name)
    try:
        module = importlib.import_module(name)
    except FAILURES as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            raise UserCodeError(f"`{reference}`: no module {error.name}") from None
        raise blame(error, reference) from None
    value = getattr(module, function, None)
    if value is None:
        near = did_you_mean(function, [other for other in vars(module) if not other.startswith("_")])
        raise UserCodeError(f"`{reference}`: the module {name} has no function `{function}`{near}")
    if not callable(value):
        raise UserCodeError(f"`{reference}` is not a function, but a value of the type {type(value).__name__}")
    return value


def split_reference(reference: str) -> tuple[str, str]:
    """Splits a reference into module and function. Raises: UserCodeError: invalid."""
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise UserCodeError(f"`{reference}` is not `module:function`, such as `reader:rows` for rows() of reader.py")
    return match[1], match[2]


def blame(error: BaseException, reference: str, given: Any = None) -> UserCodeError:
    """Makes the error for an exception in the user's code: its type, its message, and the user's line.

    Texts in `given`, the code's arguments, may be secret: stars replace those in the message that are no existing file,
    no path in an existing folder, and not the file that could not be opened.
    """
    module, code = sys.modules.get(reference.partition(":")[0]), _Finder.code
    own = {getattr(module, "__file__", None), *(map(code.path, code.files) if code else ())}
    frames = ((frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__))
    places = [place for place in frames if place[0] in own]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    where = f" in {os.path.basename(places[-1][0])}, line {places[-1][1]}" if places else ""
    says = (str(error).splitlines() or [""])[0]
    folder, opened = code.folder if code else "", str(getattr(error, "filename", "://"))
    for text in sorted(_texts(given), key=len, reverse=True):
        path = Path(folder, text)
        is_opened = "://" not in opened and f"/{text.strip('/')}/" in f"/{opened}/"
        is_inside = "/" in text.strip("./") and os.path.isdir(path.parent)
        says = says if is_opened or is_inside or os.path.lexists(path) else says.replace(text, HIDDEN)
    return UserCodeError(f"`{reference}` failed{where}: {type(error).__name__}{says and ': '}{says[:300]}")


def _texts(value: Any) -> Iterator[str]:
    """Yields the texts in a JSON value, also as URLs and `repr` write them, except short ones such as `csv`."""
    if isinstance(value, str) and len(value) >= SHORTEST:
        yield from (value, quote(value), quote(value, safe=""), quote_plus(value), repr(value)[1:-1])
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)


@contextmanager
def in_its_folder() -> Iterator[None]:
    """Changes to the spec's folder, which may be missing on a cluster's worker."""
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else os.getcwd())
        with suppress(OSError):
            os.chdir(_Finder.code.folder if _Finder.code else "")
    try:
        yield
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                os.chdir(before)


@dataclass(frozen=True)
class UserCode:
    """Source of the modules in a spec's folder that its references need."""

    folder: str
    files: Mapping[str, bytes]  # each file's source, by its path in the folder (POSIX)

    @classmethod
    def of(cls, references: Iterable[str], folder: str) -> "UserCode":
        """Gathers referenced modules and their imports from a folder. Raises: UserCodeError: missing or invalid."""
        files: dict[str, bytes] = {}
        for reference in references:
            name, _ = split_reference(reference)
            if _is_taken(name) and _file(Path(folder), name):
                raise UserCodeError(f"`{reference}`: a module of Python or Recordmill has this name: rename yours")
            if not _add(Path(folder), name, files, reference) and not _check_place(reference, name):
                near = did_you_mean(name, sorted(path.stem for path in Path(folder).glob("*.py")))
                raise UserCodeError(f"`{reference}`: no {name.replace('.', '/')}.py in {folder}, no such package{near}")
        return cls(os.path.abspath(folder), dict(sorted(files.items())))

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the files' paths and contents, in hexadecimal, independent of the folder."""
        digest = hashlib.sha256()
        for path, source in sorted(self.files.items()):
            digest.update(b"%d:%b%d:%b" % (len(path.encode()), path.encode(), len(source), source))
        return digest.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Returns its part of the manifest: SHA-256 of all and of each file, in hexadecimal."""
        files = {path: hashlib.sha256(source).hexdigest() for path, source in sorted(self.files.items())}
        return {"sha256": self.sha256, "files": files}

    def install(self) -> None:
        """Lets this process import the modules, and drops those of code installed before."""
        if _Finder.code is not None and _Finder.code.sha256 == self.sha256:
            return
        for name, module in list(sys.modules.items()):
            if isinstance(getattr(module, "__loader__", None), _Loader) or self.find(name):
                del sys.modules[name]
        if _Finder not in sys.meta_path:
            sys.meta_path.insert(0, _Finder)
        _Finder.code = self

    def find(self, name: str) -> str | None:
        """Returns a module's file in `files`; None without one."""
        path = name.replace(".", "/")
        return next((file for file in (f"{path}/__init__.py", f"{path}.py") if file in self.files), None)

    def path(self, file: str) -> str:
        """Returns a file's original path, which may not exist here."""
        return os.path.join(self.folder, file)


class _Finder:
    """Finds modules of the installed code; Python asks it first."""

    code: UserCode | None = None

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if cls.code is None:
            return None
        file = cls.code.find(name)
        if file is None:  # a package may be a folder without an `__init__.py`
            is_folder = any(file.startswith(f"{name.replace('.', '/')}/") for file in cls.code.files)
            return ModuleSpec(name, None, is_package=True) if is_folder else None
        return importlib.util.spec_from_loader(name, _Loader(cls.code, file), is_package=file.endswith("__init__.py"))


class _Loader(SourceLoader):
    def __init__(self, code: UserCode, file: str) -> None:
        self._code, self._file = code, file

    def get_filename(self, fullname: str) -> str:
        return self._code.path(self._file)

    def get_data(self, path: Any) -> bytes:
        if path != self._code.path(self._file):
            raise OSError(f"{path} is unknown")  # byte code, for one
        return self._code.files[self._file]


def _add(folder: Path, name: str, files: dict[str, bytes], reference: str) -> bool:
    """Adds a module, its packages and its imports; False if it lies outside the folder."""
    file = None if _is_taken(name) else _file(folder, name)
    if file is None:
        return False
    package = name.rpartition(".")[0]
    if package:
        _add(folder, package, files, reference)
    if file in files or not file.endswith(".py"):
        return True
    path = folder / file
    if not path.resolve().is_relative_to(folder.resolve()):
        raise UserCodeError(f"{path} is a link out of the spec's folder")
    files[file] = path.read_bytes()
    try:
        tree = ast.parse(files[file], str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise UserCodeError(f"{path}{line}: {getattr(error, 'msg', error)}") from None
    package, imported = name if file.endswith("__init__.py") else package, list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # a relative import beyond the package: Python reports it at run time
                module = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                imported += [module, *(f"{module}.{alias.name}" for alias in node.names)]  # either may be a module
    for each in imported:
        if not _add(folder, each, files, reference):
            _check_place(reference, each)
    return True


def _is_taken(name: str) -> bool:
    """Whether Python finds the module elsewhere, whatever the folder holds."""
    top = name.partition(".")[0]
    return top in ("", "recordmill") or top in sys.stdlib_module_names


def _file(folder: Path, name: str) -> str | None:
    """Finds a module's file in a folder, or the folder of a package without an `__init__.py`."""
    path = name.replace(".", "/")
    for file in (f"{path}/__init__.py", f"{path}.py"):
        if (folder / file).is_file():
            return file
    return path if (folder / path).is_dir() else None


def _check_place(reference: str, name: str) -> bool:
    """Whether Python finds a module's package outside the folder; raises if it is not installed."""
    place = min(_places(_imported(name.partition(".")[0])), default=None)
    if place is None or _is_taken(name) or is_installed(name):
        return place is not None
    what = f"{name} would come from {place}, neither in the spec's folder nor in an installed package"
    raise UserCodeError(f"`{reference}`: {what}: put it beside the spec, or install it")
