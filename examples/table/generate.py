"""Generates `customers.csv`: a customer a row, with gaps, and whether the customer left.

python examples/table/generate.py demo/table/data
"""

import argparse
import csv
from pathlib import Path

import numpy as np

PLANS = {"free": 0.8, "basic": 0.0, "family": -0.9}
COUNTRIES = {"AT": -0.4, "CH": 0.0, "DE": 0.3, "FR": 0.6}
HEADER = ("customer", "months", "spent", "tickets", "plan", "country", "left")


def customer(number: int, random: np.random.Generator) -> tuple[object, ...]:
    """Makes a row: a customer who writes many tickets early, on a free plan, leaves."""
    plan, country = str(random.choice(list(PLANS))), str(random.choice(list(COUNTRIES)))
    months, spent, tickets = int(random.exponential(20)), random.gamma(2.0, 60.0), int(random.poisson(2))
    score = 2.0 - 1.6 * np.log1p(months) + 1.2 * tickets + 2.0 * PLANS[plan] + COUNTRIES[country] - 0.006 * spent
    left = "yes" if score + random.logistic(scale=0.5) > 0 else "no"
    return number, months, f"{spent:.2f}", "" if random.random() < 0.1 else tickets, plan, country, left


def generate(folder: Path, customers: int = 4000) -> None:
    """Writes the table into a folder; the same number gives the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    with (folder / "customers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(customer(number, random) for number in range(customers))
    print(f"{folder}: customers.csv with {customers} rows")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Generates a table of customers.")
    parser.add_argument("folder", type=Path)
    generate(parser.parse_args().folder)
