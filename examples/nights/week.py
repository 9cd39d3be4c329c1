"""Lets a week of nights pass, of which one is bad: its amounts came in cents.

python examples/nights/week.py demo/nights
"""

import argparse
import csv
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

DAYS = [f"2026-11-{day}" for day in range(16, 23)]
BAD = 4  # the fifth night
ROWS = 400
HELD_BACK = 4  # the exit code of a build whose version the gate held back


def write_day(folder: Path, day: int, unit: int = 1) -> None:
    """Writes a day's visits; the same day gives the same file. `unit` is 100 for amounts in cents."""
    random = np.random.default_rng(day)
    with (folder / f"{DAYS[day]}.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["visit", "amount", "country", "bought"])
        for number in range(ROWS):
            amount = random.gamma(2.0, 20.0)
            bought = "yes" if random.random() < amount / (amount + 40) else "no"
            writer.writerow([f"{day}-{number}", f"{amount * unit:.2f}", random.choice(["AT", "CH", "DE"]), bought])


def recordmill(*arguments: str) -> int:
    """Runs a command, shows it, and returns its exit code."""
    print(f"$ recordmill {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "recordmill", *arguments], check=False).returncode


def main() -> None:
    """Builds each night, finds the bad one held back, mends its file and goes on."""
    parser = argparse.ArgumentParser(description="Lets a week of nights pass.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    spec = shutil.copy(Path(__file__).with_name("dataset.yaml"), folder / "dataset.yaml")
    build = ("build", str(spec), "--output", str(folder / "out"), "--quiet")
    for day in range(len(DAYS)):
        write_day(folder / "data", day, 100 if day == BAD else 1)
        code = recordmill(*build)
        if day == BAD:
            if code != HELD_BACK:
                sys.exit(f"week.py: the bad night ended with {code}, not {HELD_BACK}: the gate let it pass")
            recordmill("diff", str(folder / "out"), "live", "held-back")
            recordmill("versions", "reject", str(folder / "out"))
            write_day(folder / "data", day)
            code = recordmill(*build)
        if code:
            sys.exit(f"week.py: the night of {DAYS[day]} ended with {code}")
    recordmill("versions", "list", str(folder / "out"))


if __name__ == "__main__":
    main()
