"""All that is written is known: who writes, where, and that nothing planted there leads a command elsewhere."""

from pathlib import Path

from tests.places import WRITERS, writers

ROOT = Path(__file__).parents[1]
ADVICE = "list the function in WRITERS of tests/places.py, and in PLACES what it writes, where links are planted"


def test_every_function_that_writes_is_known() -> None:
    found = {
        module: functions for room in ("pipeline", "transforms") for module, functions in writers(ROOT / room).items()
    }
    known = {module: {*functions.split()} for module, functions in WRITERS.items()}
    new = {module: functions - known.get(module, set()) for module, functions in found.items()}
    gone = {module: functions - found.get(module, set()) for module, functions in known.items()}
    assert {module: functions for module, functions in new.items() if functions} == {}, ADVICE
    assert {module: functions for module, functions in gone.items() if functions} == {}, "they write no more"
