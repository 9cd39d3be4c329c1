"""Sums over the reports of shards, by split, of the counts that have an entry for each class or value.

The driver holds each sum once: 65,536 reports of 1,000 classes and a number would take 7 GB.

>>> sums = ShardSums()
>>> sums.add({"split": "train", "label_counts": {"0": 2}, "profile": {}, "records": 2})
{'split': 'train', 'records': 2}
>>> sums.labels["train"]
Counter({0: 2})
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from recordmill.pipeline.dataset.profile import FeatureProfile, Profile, add_up, profile_of_json

TOGETHER = 64  # profiles that are added up at once
LARGE = ("label_counts", "profile")


class ShardSums:
    """Sums of shards' reports."""

    def __init__(self) -> None:
        self.labels: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """The records of each class, by split and id."""
        self._profiles: defaultdict[str, list[Profile]] = defaultdict(list)

    def add(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Adds a report; gives what is left of it without the summed counts."""
        split = report["split"]
        self.labels[split].update({int(label): count for label, count in report.get("label_counts", {}).items()})
        profiles = self._profiles[split]
        profiles.append(profile_of_json(report.get("profile", {})))
        if len(profiles) > TOGETHER:
            self._profiles[split] = [add_up(profiles)]
        return {name: value for name, value in report.items() if name not in LARGE}

    def profiles(self) -> dict[str, dict[str, FeatureProfile]]:
        """Gives the profile of each split that has shards."""
        return {split: add_up(profiles) for split, profiles in self._profiles.items()}
