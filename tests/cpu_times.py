"""A pytest plugin that writes the CPU time of each case, with its processes', to `build/cpu-times.txt`.

`PYTEST_ADDOPTS='-p tests.cpu_times' make test` loads it, as CI does. A case above `DAY_SECONDS` runs by day only as the
sole proof of its promise. A shared fixture counts for the first case that asks for it.
"""

import os
from collections import Counter
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest

FILE = Path(__file__).parents[1] / "build/cpu-times.txt"
DAY_SECONDS = 1.5
CASES = Counter[str]()


def cpu_seconds() -> float:
    """Returns the CPU seconds so far of this process, of its ended children, and of those of its fork server."""
    server = vars(forkserver)["_forkserver"]._forkserver_pid
    forked = psutil.Process(server).cpu_times()[:4] if server else ()
    return sum(os.times()[:4]) + sum(forked)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Adds the time since the last report to this one, which xdist sends to the process that writes the file."""
    report = yield
    now = cpu_seconds()
    report.user_properties = [("cpu", now - item.session.stash.get(LAST, 0.0))]
    item.session.stash[LAST] = now
    return report


LAST = pytest.StashKey[float]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins to count."""
    session.stash[LAST] = cpu_seconds()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up what the three reports of a case say."""
    CASES[report.nodeid] += dict(report.user_properties).get("cpu", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Writes the file, the most expensive case first, and says the sums."""
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{seconds:8.2f} {case}\n" for case, seconds in CASES.most_common()))
    dear = [seconds for seconds in CASES.values() if seconds > DAY_SECONDS]
    terminalreporter.write_line(f"{sum(CASES.values()):.0f} s of CPU; {sum(dear):.0f} s in {len(dear)} cases: {FILE}")
