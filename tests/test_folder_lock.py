"""The lock of an output: nobody who may only read the output can hold it, and a wait has a name and an end."""

import errno
import fcntl
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recordmill.pipeline.errors import ExitCode, code_of
from recordmill.pipeline.versions.stores import local
from recordmill.pipeline.versions.stores.base import OutputError, UnsettledOutputError
from recordmill.pipeline.versions.stores.local import LOCK_FILE, take_lock
from recordmill.pipeline.versions.stores.open_store import open_store
from tests.constants import constants
from tests.messages import assert_names, raises

READER = """
import fcntl, sys, time
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def held_by_a_reader(file: Path) -> Iterator[int]:
    """Lets a process hold a lock as anybody can who may read the file; gives its number."""
    with subprocess.Popen([sys.executable, "-c", READER, str(file)], stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"held\n"
        yield reader.pid
        reader.kill()


@pytest.fixture
def impatient() -> Iterator[None]:
    """Waits for a lock for a moment only."""
    with constants(local, PATIENCE_SECONDS=0.3, NOTE_SECONDS=0.05):
        yield


@pytest.mark.parametrize(("folder", "file"), [(0o755, 0o600), (0o700, 0o600), (0o2775, 0o660), (0o777, 0o666)])
def test_who_may_write_into_the_folder_may_open_the_lock(folder: int, file: int, tmp_path: Path) -> None:
    tmp_path.chmod(folder)
    with open_store(str(tmp_path)).locked():
        assert stat.S_IMODE((tmp_path / LOCK_FILE).stat().st_mode) == file
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_looser_lock_that_was_left_is_tightened(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).touch(0o644)
    descriptor = take_lock(tmp_path)
    assert stat.S_IMODE((tmp_path / LOCK_FILE).stat().st_mode) == 0o600
    os.close(descriptor)


@pytest.mark.usefixtures("impatient")
def test_a_reader_who_holds_one_that_was_left_is_named_and_not_waited_for_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = tmp_path / LOCK_FILE
    lock.touch(0o644)
    with held_by_a_reader(lock) as process:
        name = f"process {process} of user " if sys.platform == "linux" else "unknown process"
        with raises(UnsettledOutputError, name, lock, "end it") as raised:
            take_lock(tmp_path)
    assert code_of(raised.value) is ExitCode.TRY_AGAIN
    (noted,) = caplog.records
    assert noted.levelno == logging.WARNING
    assert_names(noted.message, name, lock)
    os.close(take_lock(tmp_path))


@pytest.mark.usefixtures("impatient")
def test_whoever_is_in_the_way_is_named_by_what_writes(tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    held = threading.Event()
    ended = threading.Event()

    def hold() -> None:
        with open(tmp_path / LOCK_FILE, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held.set()
            ended.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with raises(UnsettledOutputError, f"process {os.getpid()} of user"):
        store.write_if("LATEST", b"1", None)
    ended.set()
    thread.join()
    store.write_if("LATEST", b"1", None)


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_another_users_lock_that_readers_may_hold_is_refused(
    mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / LOCK_FILE).touch(mode)
    as_another_user(monkeypatch, fchmod=refuse)
    if mode == 0o600:
        os.close(take_lock(tmp_path))
    else:
        with raises(OutputError, tmp_path / LOCK_FILE, "user ", "remove it"):
            take_lock(tmp_path)


def as_another_user(monkeypatch: pytest.MonkeyPatch, **calls: Callable[..., object]) -> None:
    """Replaces calls of `os`, as a process of another user meets them."""
    for name, call in {"geteuid": lambda: 4711, **calls}.items():
        monkeypatch.setattr(os, name, call)


def refuse(*_: object) -> None:
    raise PermissionError


def unsupported(*_: object) -> None:
    raise OSError(errno.ENOTSUP, "Operation not supported")


@pytest.mark.parametrize("fail", [refuse, unsupported])
def test_a_file_system_of_fixed_modes_can_be_locked(
    fail: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    (tmp_path / LOCK_FILE).touch()
    (tmp_path / LOCK_FILE).chmod(0o777)  # as CIFS shows every file
    as_another_user(monkeypatch, fchmod=fail)
    os.close(take_lock(tmp_path))


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK_FILE).symlink_to(tmp_path / "other")
    with raises(OutputError, tmp_path / "out", "symbolic links"):
        open_store(str(tmp_path / "out")).write_if("LATEST", b"1", None)
    assert not (tmp_path / "other").exists()


def test_a_lock_in_a_folder_that_may_not_be_written_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError):
        take_lock(tmp_path)
