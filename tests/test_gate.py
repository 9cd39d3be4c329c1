"""The gate's rules: each is breached by its case, none by an equal version; limits by feature."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recordmill.dataset import open_dataset
from recordmill.pipeline.cli.commands import app
from recordmill.pipeline.compare.figures import Figure
from recordmill.pipeline.compare.gate import Verdict, judge
from recordmill.pipeline.compare.versions import ComparedVersion, SpanProfile
from recordmill.pipeline.dataset.histogram import Histogram
from recordmill.pipeline.dataset.manifest import Manifest, Shard, Span, Split
from recordmill.pipeline.dataset.profile import FeatureProfile, Profiles, to_text
from recordmill.pipeline.facts.page import report_of
from recordmill.pipeline.spec.gate import Gate
from recordmill.pipeline.spec.model import parse_spec
from recordmill.pipeline.yaml_document import SpecError
from tests import published
from tests.messages import assert_names, raises

SPEC = """
name: d
source: {format: jsonl, path: a.jsonl}
label: label
features:
  label: {kind: category}
  age: {kind: number}
  text: {kind: text}
  image: {kind: image, size: [4, 4]}
"""
NAMES = {"stored": "int64", "vocabulary_size": 2, "unknown_id": None, "first_id": 0}
FEATURES: dict[str, dict[str, Any]] = {
    "label": {"kind": "category", "vocabulary": "label.txt", **NAMES},
    "age": {"kind": "number", "stored": "float32", "normalize": "none"},
    "text": {"kind": "text", "length": "varying", "max_length": None, "vocabulary": "text.txt", "vocabulary_size": 4}
    | {"padding_id": 0, "unknown_id": 1, "first_id": 2},
    "image": {"kind": "image", "stored": "bytes", "shape": [4, 4, 3], "dtype": "float32"},
}
PIXELS = {"mean": [10.0, 20.0, 30.0], "variance": [4.0, 4.0, 4.0], "images": 500}


def histogram(values: Any) -> Histogram:
    return Histogram.of(np.asarray(values, np.float32))


def split(records: int) -> Split:
    return Split((Shard("data", 8, records, "00", "index"),))


PROFILE = {
    "label": FeatureProfile(800, ids={0: 400, 1: 400}, tokens=800),
    "age": FeatureProfile(800, 8, histogram(np.arange(792))),
    "text": FeatureProfile(800, 0, histogram(np.arange(800) % 20), tokens=8000, unknown=80),
    "image": FeatureProfile(800, appearance={"red": histogram(np.arange(200)), "blue": histogram(np.arange(200))}),
}


@pytest.fixture
def live(tmp_path: Path) -> ComparedVersion:
    (tmp_path / "label.txt").write_text("cat\ndog\n")
    (tmp_path / "text.txt").write_text("a\nb\n")
    splits = {"train": split(800), "test": split(200), "rare": split(5)}
    counts = {"read": 1010, "written": 1005, "rejected": 5, "duplicates": 0}
    exact = {"within": {"train": 10}, "across": {"train": {"test": 2}}}
    kinds = {name: {"kind": feature["kind"]} for name, feature in FEATURES.items()}
    manifest = Manifest("d", "v1", "k", "label", FEATURES, splits, {"image": PIXELS}, counts)
    asked = {"features": kinds, "splits": {"train": 1}}
    reasons = {"by_reason": {"filtered: short": 2, "wrong_type": 3}}
    manifest = replace(manifest, duplicates={"keys_across": 0, "exact": exact}, spec=asked, rejects=reasons)
    return ComparedVersion(manifest, tmp_path, {"train": PROFILE})


def breaches(live: ComparedVersion, after: ComparedVersion, gate: Gate = Gate()) -> list[str]:  # noqa: B008 - frozen
    return [f"{figure.rule}: {figure.name}" for figure in judge(live, after, gate).breaches]


def described(version: ComparedVersion, **changes: Any) -> ComparedVersion:
    return replace(version, manifest=replace(version.manifest, **changes))


def profiled(version: ComparedVersion, **features: FeatureProfile) -> ComparedVersion:
    return replace(version, profiles={"train": PROFILE | features})


def test_an_equal_version_moves_nothing(live: ComparedVersion) -> None:
    verdict = judge(live, live, Gate())
    assert verdict.not_compared == ()
    assert {figure.value for figure in verdict.figures} == {0.0}
    rules = {figure.rule for figure in verdict.figures}
    assert rules == set(Gate.model_fields) - {"min_rows", "min_values", "rows_short", "features"}


def rows(live: ComparedVersion, **records: int) -> ComparedVersion:
    counts = {"train": 800, "test": 200, "rare": 5} | records
    return described(live, splits={name: split(count) for name, count in counts.items()})


def test_rows_lost_and_gained(live: ComparedVersion) -> None:
    assert breaches(live, rows(live, train=720, test=180)) == []
    assert breaches(live, rows(live, train=719)) == ["rows_lost: train"]
    assert breaches(live, rows(live, train=600, test=150)) == ["rows_lost: all", "rows_lost: train", "rows_lost: test"]
    assert breaches(live, rows(live, rare=1)) == []  # so few rows come and go
    assert breaches(live, rows(live, rare=0)) == ["rows_lost: rare"]
    twice = rows(live, train=1601)
    assert breaches(live, twice) == []
    assert breaches(live, twice, Gate(rows_gained=1)) == ["rows_gained: train"]


def test_rejects_duplicates_and_leakage(live: ComparedVersion) -> None:
    bad = described(live, rows={"read": 1010, "rejected": 17})
    assert breaches(live, bad) == ["rejects: all"]
    within = {"keys_across": 0, "exact": {"within": {"train": 70}, "across": {"train": {"test": 2}}}}
    assert breaches(live, described(live, duplicates=within)) == ["duplicates: all"]
    across = {"keys_across": 5, "exact": {"within": {"train": 10}, "across": {"train": {"test": 9}}}}
    assert breaches(live, described(live, duplicates=across)) == ["leakage: all"]


def test_filtered_rows_are_judged_by_reason_and_are_no_other_rejects(live: ComparedVersion) -> None:
    reasons, counts = {"filtered: short": 60, "filtered: dark": 20, "wrong_type": 3}, {"read": 1010, "rejected": 83}
    after = described(live, rejects={"by_reason": reasons}, rows=counts)
    assert breaches(live, after) == ["filtered: short"]
    assert breaches(after, live) == ["filtered: short"]  # a rule that leaves nothing out any more
    assert breaches(live, after, Gate(filtered=0.01)) == ["filtered: dark", "filtered: short"]
    edited = described(after, spec={**live.manifest.spec, "filter": "rules:keep"})
    assert breaches(live, edited) == []
    assert_names(judge(live, edited, Gate()).not_compared, "`filter`")
    made = [{"user_code": {"files": {"rules.py": each, "reader.py": "a"}}} for each in "ab"]
    old, same, new = (
        described(each, spec=edited.manifest.spec, provenance=made[n])
        for each, n in ((live, 0), (after, 0), (after, 1))
    )
    assert (breaches(old, same), breaches(old, new)) == (["filtered: short"], [])


def test_schema(live: ComparedVersion) -> None:
    features = FEATURES | {"age": FEATURES["age"] | {"stored": "int64"}}
    del features["image"]
    changed = described(live, features=features)
    assert breaches(live, changed) == ["schema_changes: age", "schema_changes: image"]
    assert breaches(live, changed, Gate(schema_changes=None)) == []
    edited = {**live.manifest.spec, "features": {"age": {"kind": "number", "quantiles": 4}, "label": {}, "text": {}}}
    edited["features"]["age"]["kind"] = "numbers"
    asked = described(changed, spec=edited)
    assert breaches(live, asked) == []
    assert breaches(live, asked, Gate(schema_changes="any")) == ["schema_changes: age", "schema_changes: image"]


def test_ids_moved(live: ComparedVersion, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "label.txt").write_text("dog\ncat\n")
    (other / "text.txt").write_text("b\na\n")
    moved = replace(profiled(live, label=replace(PROFILE["label"], ids={0: 400, 1: 400})), folder=other)
    assert breaches(live, moved) == ["ids_moved: label"]
    fresh = described(moved, spec={"features": {"label": {"kind": "category", "classes": "fresh"}}})
    assert breaches(live, fresh) == []
    of_text = Gate.model_validate({"ids_moved": None, "features": {"text": {"ids_moved": 0.4}}})
    assert breaches(live, moved, of_text) == ["ids_moved: text"]


BULGED = np.arange(792) + 120 * np.sin(np.arange(792) * np.pi / 792)
"""Numbers of which the middle moved."""
CASES: Mapping[str, tuple[str, FeatureProfile]] = {
    "missing: age (train)": ("age", FeatureProfile(800, 60, histogram(np.arange(740)))),
    "psi: age (train)": ("age", FeatureProfile(800, 8, histogram(np.arange(792) / 2 + 198))),
    "shift: age (train)": ("age", FeatureProfile(800, 8, histogram(BULGED))),
    "psi: text (train)": ("text", replace(PROFILE["text"], histogram=histogram(np.arange(800) % 8))),
    "out_of_vocabulary: text (train)": ("text", replace(PROFILE["text"], unknown=800)),
    "appearance: image (train)": ("image", FeatureProfile(800, appearance={"blue": histogram(np.arange(80, 280))})),
    "l_infinity: label (train)": ("label", replace(PROFILE["label"], ids={0: 500, 1: 300})),
}


@pytest.mark.parametrize("expected", CASES)
def test_values(live: ComparedVersion, expected: str) -> None:
    name, profile = CASES[expected]
    after = profiled(live, **{name: profile})
    rule = expected.partition(":")[0]
    assert breaches(live, after) == [expected]
    assert breaches(live, after, Gate.model_validate({rule: None})) == []
    assert breaches(live, after, Gate.model_validate({"features": {name: {rule: 1000 if rule == "psi" else 1}}})) == []
    assert breaches(live, after, Gate.model_validate({"features": {name: False}})) == []
    assert breaches(live, after, Gate.model_validate({rule: None, "features": {name: {rule: 0.01}}})) == [expected]
    assert breaches(live, after, Gate(min_rows=9000, min_values=9000)) == []


def with_spans(version: ComparedVersion, profiles: Mapping[str, Profiles], rows: int = 800) -> ComparedVersion:
    """Adds new spans to a version."""
    new = {name: Span("", {"written": rows}, 1, 1, "") for name in profiles}
    spans = {name: SpanProfile(profile) for name, profile in profiles.items()}
    return replace(described(version, spans={**version.manifest.spans, **new}), spans=spans)


def follow(live: ComparedVersion, after: ComparedVersion) -> ComparedVersion:
    """Makes a judged version the live one."""
    gate = judge(live, after, Gate()).to_json()
    return replace(described(after, gate=gate), spans={})


def test_a_new_span_is_compared_with_all_rows(live: ComparedVersion) -> None:
    bad = replace(PROFILE["label"], ids={0: 500, 1: 300})
    after = with_spans(live, {"a": {"train": PROFILE | {"label": bad}}, "b": {"train": PROFILE}})
    assert breaches(live, after) == ["l_infinity: label (train, a)"]
    few = with_spans(live, {"a": {"train": {"label": FeatureProfile(40, ids={0: 40}, tokens=40)}}})
    assert breaches(live, few) == []
    assert breaches(live, few, Gate(min_rows=40, min_values=40)) == ["l_infinity: label (train, a)"]


def a_day(number: int) -> Profiles:
    """Returns a day's profile with one label, the same every second day."""
    return {"train": PROFILE | {"label": replace(PROFILE["label"], ids={number % 2: 800})}}


def test_usual_differences_between_days_are_no_breach(live: ComparedVersion) -> None:
    held = []
    for day in range(8):
        after = with_spans(live, {f"2026-11-{day:02}": a_day(day)})
        held.append(breaches(live, after))
        live = follow(live, after)
    assert [bool(each) for each in held] == [True] * 5 + [False] * 3
    worse = {"train": PROFILE | {"age": CASES["psi: age (train)"][1], "label": replace(PROFILE["label"], ids={0: 800})}}
    assert breaches(live, with_spans(live, {"2026-11-08": worse})) == ["psi: age (train, 2026-11-08)"]
    other = with_spans(live, {"elsewhere": a_day(0)})  # a span of another template
    assert breaches(live, other) == ["l_infinity: label (train, elsewhere)"]
    assert set(live.manifest.gate["usual"]["figures"]) == {"l_infinity"}


def test_new_words_of_the_first_days_are_learned_before_they_are_limited(live: ComparedVersion) -> None:
    days = [{"train": PROFILE | {"text": replace(PROFILE["text"], unknown=unknown)}} for unknown in (800, 1000, 4000)]
    live = follow(live, with_spans(live, {"2026-11-00": {}}))
    for day in range(1, 8):
        after = with_spans(live, {f"2026-11-{day:02}": days[day % 2]})
        assert breaches(live, after) == []
        if day < 5:
            own = Gate(out_of_vocabulary=0.05)
            assert breaches(live, after, own) == [f"out_of_vocabulary: text (train, 2026-11-{day:02})"]
        live = follow(live, after)
    assert breaches(live, with_spans(live, {"2026-11-08": days[2]})) == ["out_of_vocabulary: text (train, 2026-11-08)"]


def test_the_last_spans_of_the_live_version_are_usual_from_the_first_night_on(live: ComparedVersion) -> None:
    days = {f"2026-11-{day:02}": a_day(day) for day in range(6)}
    known = with_spans(live, days)
    assert breaches(known, with_spans(replace(known, spans={}), {"2026-11-06": a_day(0)})) == []
    assert breaches(replace(known, spans={}), with_spans(replace(known, spans={}), {"2026-11-06": a_day(0)})) != []


def test_a_new_span_with_few_rows(live: ComparedVersion) -> None:
    days = [f"2026-11-{day:02}" for day in range(6)]
    known = replace(with_spans(live, dict.fromkeys(days[:4], {})), spans={})
    half = with_spans(known, {"2026-11-09": {}}, rows=400)
    assert breaches(known, half) == []  # four spans say little
    assert breaches(known, with_spans(known, {"2026-11-09": {}}, rows=0)) == ["rows_short: rows (2026-11-09)"]
    known = replace(with_spans(live, dict.fromkeys(days, {})), spans={})
    half = with_spans(known, {"2026-11-09": {}}, rows=400)
    (breach,) = judge(known, half, Gate()).breaches
    assert_names(breach, "rows_short", "rows (2026-11-09)", 0.5, 0.4, "400 rows", "6 spans", 800)
    assert breaches(known, half, Gate(rows_short=None)) == []
    sunday = replace(with_spans(known, {"2026-11-08": {}}, rows=380), spans={})
    assert breaches(sunday, with_spans(sunday, {"2026-11-15": {}}, rows=380)) == []
    assert breaches(sunday, with_spans(sunday, {"2026-11-15": {}}, rows=200)) == ["rows_short: rows (2026-11-15)"]


def test_after_a_span_that_was_nearly_empty_another_one_is_still_too_short(live: ComparedVersion) -> None:
    days = dict.fromkeys([f"2026-11-{day:02}" for day in range(1, 7)], {})
    known = replace(with_spans(replace(with_spans(live, days), spans={}), {"2026-11-07": {}}, rows=80), spans={})
    assert breaches(known, with_spans(known, {"2026-11-08": {}}, rows=80)) == []
    assert breaches(known, with_spans(known, {"2026-11-08": {}}, rows=60)) == ["rows_short: rows (2026-11-08)"]


LABELS = [replace(PROFILE["label"], ids={0: 400 + more, 1: 400 - more}) for more in (100, 110, 260)]


def test_an_approved_day_is_usual_until_it_is_worse(live: ComparedVersion) -> None:
    """One changed picture in it is no news, on any later night; in another day the same figure is."""
    held, little, worse = ({"d1": {"train": PROFILE | {"label": label}}} for label in LABELS)
    approved = follow(live, with_spans(live, held))
    assert approved.manifest.gate["breaches"]
    later = follow(approved, with_spans(approved, {"d2": {"train": PROFILE}}))
    for base in (approved, later):
        assert breaches(base, with_spans(base, little)) == []
        assert breaches(base, with_spans(base, worse)) == ["l_infinity: label (train, d1)"]
    assert breaches(later, with_spans(later, {"d3": held["d1"]})) == ["l_infinity: label (train, d3)"]
    assert breaches(live, with_spans(live, little)) == ["l_infinity: label (train, d1)"]  # rolled back, or rejected
    compacted = Span("", {"written": 1600}, 1, 1, "", {"d1": "", "d2": ""})
    together = replace(described(later, spans={"d1+d2": compacted}), spans={})
    assert breaches(together, with_spans(together, {"d1+d2": little["d1"]})) == []
    gone = follow(later, described(later, spans={}))
    assert breaches(gone, with_spans(gone, little)) == ["l_infinity: label (train, d1)"]


def test_an_approved_drift_from_a_frozen_analysis_is_usual(live: ComparedVersion) -> None:
    def shifted(by: float) -> ComparedVersion:
        return described(live, drift={"features": {"image": {"images": 200, "mean_shift": [0.1, by, 0.0]}}})

    approved = follow(live, shifted(0.5))
    assert approved.manifest.gate["approved"] == {"pixels": {"image": {"": 0.5}}}
    night = follow(approved, shifted(0.6))
    assert (night.manifest.gate["breaches"], breaches(night, shifted(0.6))) == ([], [])
    assert breaches(night, shifted(0.7)) == ["pixels: image"]  # the approved figure stays what it was


def test_a_name_that_is_lost(live: ComparedVersion, tmp_path: Path) -> None:
    """However rare, if it had `min_values` values in all splits together."""
    many = replace(live, profiles={split: {"label": FeatureProfile(9900, ids={0: 9650, 1: 250})} for split in "ab"})

    def without(ids: Mapping[int, int]) -> ComparedVersion:
        return replace(many, profiles={"a": {"label": FeatureProfile(9900, ids=ids)}})

    many = replace(many, profiles={s: {"label": replace(p["label"], tokens=9900)} for s, p in many.profiles.items()})
    (breach,) = judge(many, without({0: 9900}), Gate()).breaches
    assert_names(breach, "names_lost", "label", 0.02525, "more than 0", "'dog' 500 → 0")
    assert breaches(many, without({0: 9899, 1: 1})) == []
    assert breaches(many, without({0: 9900}), Gate(min_values=501)) == []
    assert breaches(many, without({0: 9900}), Gate(names_lost=0.03)) == []
    day = FeatureProfile(9900, ids={0: 9900}, tokens=9900)  # should have 250 of them
    after = with_spans(many, {"a": {"train": {"label": day}}})
    assert breaches(many, after) == []
    assert breaches(many, after, Gate(min_values=250)) == ["names_lost: label (a)"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1000, []), (860, []), (700, ["rows_short: rows (2026-03-02)"])],
    ids=["usual", "-14%", "-30%"],
)
def test_a_small_day_is_one_that_is_small_among_steady_days(
    live: ComparedVersion, rows: int, expected: list[str]
) -> None:
    """Days of 950 to 1,050 rows; from two weeks on they decide, before that the limit."""
    counts = {f"2026-02-{day:02}": 950 + day * 7 % 11 * 10 for day in range(10, 24)}
    known = with_spans(live, dict.fromkeys(counts, {}))
    spans = {name: replace(span, rows={"written": counts[name]}) for name, span in known.manifest.spans.items()}
    known = replace(described(known, spans=spans), spans={})
    assert breaches(known, with_spans(known, {"2026-03-02": {}}, rows=rows)) == expected
    assert breaches(known, with_spans(known, {"2026-03-02": {}}, rows=rows), Gate(rows_short=0.4)) == []
    young = replace(described(known, spans=dict([*spans.items()][1:])), spans={})
    assert breaches(young, with_spans(young, {"2026-03-02": {}}, rows=rows)) == []


@pytest.mark.parametrize(
    ("rule", "usual", "figure", "is_breach"),
    [
        ("missing", 0.0, 0.06, True),
        ("missing", 0.2, 0.25, False),
        ("missing", 0.2, 0.26, True),
        ("l_infinity", 0.9, 0.919, False),
        ("l_infinity", 0.9, 0.921, True),
        ("l_infinity", 1.0, 1.0, False),
        ("psi", 0.9, 1.12, False),
        ("psi", 0.9, 1.13, True),
        ("pixels", 4.0, 5.0, False),
        ("pixels", 4.0, 5.1, True),
    ],
)
def test_a_figure_beyond_what_is_usual(rule: str, usual: float, figure: float, is_breach: bool) -> None:
    assert Figure(rule, "age", figure, limit=0.05, usual=usual).is_breach == is_breach


def test_jensen_shannon_is_limited_where_it_is_asked_for(live: ComparedVersion) -> None:
    rare_gone = profiled(live, label=replace(PROFILE["label"], ids={0: 440, 1: 360}))
    assert breaches(live, rare_gone) == []
    assert breaches(live, rare_gone, Gate(jensen_shannon=0.001)) == ["jensen_shannon: label (train)"]


def test_names_are_compared_by_name(live: ComparedVersion, tmp_path: Path) -> None:
    """Ids that moved with their counts are another distribution of ids, and the same of names."""
    skewed = profiled(live, label=replace(PROFILE["label"], ids={0: 600, 1: 200}))
    other = tmp_path / "other"
    other.mkdir()
    (other / "label.txt").write_text("dog\ncat\n")
    (other / "text.txt").write_text("a\nb\n")
    swapped = replace(profiled(live, label=replace(PROFILE["label"], ids={0: 200, 1: 600})), folder=other)
    assert breaches(skewed, swapped, Gate(ids_moved=None)) == []


def test_pixels(live: ComparedVersion) -> None:
    brighter = described(live, statistics={"image": PIXELS | {"mean": [10.0, 20.0, 31.0]}})
    assert breaches(live, brighter) == ["pixels: image"]
    flatter = described(live, statistics={"image": PIXELS | {"variance": [4.0, 1.0, 4.0]}})
    assert breaches(live, flatter) == ["pixels: image"]
    drift = {"features": {"image": {"images": 200, "mean_shift": [0.1, -0.5, 0.0]}}}
    assert breaches(live, described(live, drift=drift)) == ["pixels: image"]
    few = described(live, statistics={"image": PIXELS | {"mean": [0.0, 0.0, 0.0], "images": 3}})
    assert breaches(live, few) == []
    day = with_spans(live, {"a": {}})
    dark = replace(day, spans={"a": SpanProfile({}, {"image": PIXELS | {"mean": [0.0, 0.0, 0.0]}})})
    assert breaches(live, dark) == ["pixels: image (a)"]


def test_what_is_not_compared_is_said(live: ComparedVersion) -> None:
    spec = {**live.manifest.spec, "splits": {"train": 2}}
    spec["features"] = {**spec["features"], "age": {"kind": "numbers"}}
    verdict = judge(live, profiled(described(live, spec=spec), age=CASES["psi: age (train)"][1]), Gate())
    splits, age = verdict.not_compared
    assert_names(splits, "splits", "`splits`", "`split_by`", "edited")
    assert_names(age, "age", "options", "edited")
    assert verdict.breaches == ()
    (live.folder / "label.txt").write_text("cat\n")  # type: ignore[operator]
    again = replace(live)  # which has read nothing yet
    (breach,) = judge(again, again, Gate()).breaches
    assert (breach.rule, breach.value) == ("not_compared", 1)
    assert_names(breach.detail, "label: v1", "damaged", "label.txt", "1 words", "expected 2")


def test_a_damaged_profile_holds_the_version_back(live: ComparedVersion, tmp_path: Path) -> None:
    (tmp_path / "profile").mkdir()
    (tmp_path / "profile/features.json").write_text(to_text({"train": PROFILE}))
    digest = hashlib.sha256((tmp_path / "profile/features.json").read_bytes()).hexdigest()
    listed = replace(live.manifest, files={"profile/features.json": {"bytes": 1, "sha256": digest}})
    assert judge(ComparedVersion.read(tmp_path, listed), live, Gate()).breaches == ()
    new = replace(listed, version="v2")
    for damage in ("{", "{}", None):  # broken; another file; no file
        (tmp_path / "profile/features.json").unlink()
        if damage is not None:
            (tmp_path / "profile/features.json").write_text(damage)
        verdict = judge(ComparedVersion.read(tmp_path, listed), rows(live, train=400), Gate())
        assert [breach.rule for breach in verdict.breaches] == ["rows_lost", "rows_lost", "not_compared"]
        assert_names(verdict.breaches[-1], "v1", "damaged", "features.json", "`recordmill verify`")
        (breach,) = judge(live, ComparedVersion.read(tmp_path, new), Gate()).breaches
        assert_names(breach.detail, "v2", "damaged", f"{tmp_path}/profile/features.json")


def test_a_damaged_vocabulary_is_said_to_be_of_its_version(live: ComparedVersion, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "text.txt").write_text("a\nb\n")
    after = replace(live, manifest=replace(live.manifest, version="v2"), folder=other)
    (breach,) = judge(live, after, Gate()).breaches
    assert_names(breach.detail, "label: v2", "damaged", other)


def test_figures_that_are_not_known_are_not_kept(live: ComparedVersion) -> None:
    days = {f"2026-11-{day:02}": a_day(day) for day in range(6)}
    known = with_spans(live, days)
    unread = replace(known, spans={})
    assert set(judge(known, unread, Gate()).usual["rows"]) == set(days)  # a build without a new span
    assert judge(unread, unread, Gate()).usual == {}  # the next build reads the live version's last spans again
    assert judge(unread, with_spans(unread, {"2026-11-06": a_day(0)}), Gate()).usual == {}
    (live.folder / "label.txt").write_text("cat\n")  # type: ignore[operator]
    damaged = replace(known)  # which has read nothing yet
    assert judge(damaged, unread, Gate()).usual == {}


def test_the_manifest_holds_every_figure_and_each_breach(live: ComparedVersion) -> None:
    held = judge(live, rows(live, train=400), Gate()).to_json()
    assert held["live"] == "v1"
    assert held["figures"]["rows_lost"] == {"all": pytest.approx(400 / 1005), "train": 0.5, "test": 0.0}
    assert held["figures"]["psi"]["age (train)"] == 0.0
    assert [Figure.from_json(each).subject for each in held["breaches"]] == ["all", "train"]
    assert_names(Figure.from_json(held["breaches"][1]), "rows_lost", "train", 0.5, 0.1, "800 → 400 rows")
    assert Verdict("v1").to_json() == {"live": "v1", "figures": {}, "breaches": [], "not_compared": []}


def test_a_gate_in_the_spec() -> None:
    assert parse_spec(SPEC).gate == Gate()
    assert parse_spec(SPEC + "gate: false\n").gate is False
    own = parse_spec(SPEC + "gate: {psi: null, features: {age: {missing: 0}, image: false}}\n").gate
    assert own
    assert (own.limit("psi", "age"), own.limit("missing", "age"), own.limit("missing", "text")) == (None, 0.0, 0.05)
    assert own.limit("missing", "image") is None


@pytest.mark.parametrize(
    ("gate", "facts"),
    [
        ("{rows_lots: 0.1}", ["`rows_lots`", "`rows_lost`"]),
        ("{probe: 0.05}", ["unknown key `probe`"]),
        ("{rows_lost: 2}", ["rows_lost", "1 or less", "`2`"]),
        ("{features: {aeg: {psi: 1}}}", ["'aeg'", "label, age, text, image", "`age`"]),
        ("{features: {age: {pixels: 1}}}", ["pixels", "kind number", "jensen_shannon, psi, shift"]),
        ("{features: {age: {pis: 1}}}", ["`pis`", "`psi`"]),
        ("{schema_changes: some}", ["schema_changes: "]),
        ("true", ["gate: "]),
    ],
)
def test_a_wrong_gate_is_one_clear_line(gate: str, facts: list[str]) -> None:
    with raises(SpecError, *facts) as error:
        parse_spec(SPEC + f"gate: {gate}\n")
    assert len(str(error.value).splitlines()) == 1


PROBED = {
    "live": "v0",
    "figures": {"probe": {"label (train)": 0.61}},
    "breaches": [{"rule": "probe", "subject": "label (train)", "figure": 0.61, "limit": 0.05, "detail": "84% → 5%"}],
    "not_compared": ["the label by its probe: a shard is missing"],
    "usual": {"rows": {"d1": 800}, "figures": {"probe": {"label (train)": {"d1": 0.04}}}},
    "approved": {"probe": {"label (train)": {"d1": 0.61}}},
}
"""The entry of a version of an earlier Recordmill, by a rule that is gone."""


def test_a_version_with_a_rule_that_is_gone_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published.write_version(tmp_path, 20, gate=PROBED, spec={"gate": {"probe": 0.05}})
    for command in (["show"], ["show", "--json"], ["versions", "list"]):
        app([*command, str(tmp_path)], standalone_mode=False)
    assert_names(capsys.readouterr().out, "probe of label (train)", 0.61, 0.05, "84% → 5%")
    page = report_of(open_dataset(tmp_path)).decode("utf-8")
    assert_names(page, "probe of label (train)", "84% → 5%")


def test_a_version_with_a_rule_that_is_gone_is_compared(live: ComparedVersion) -> None:
    before = with_spans(described(live, gate=PROBED), {"d1": {}})
    after = with_spans(described(live, spans=before.manifest.spans), {"d2": {"train": PROFILE}})
    verdict = judge(replace(before, spans={}), after, Gate())
    assert (verdict.breaches, verdict.not_compared) == ((), ())
    assert "probe" not in verdict.to_json()["figures"]


def test_vocabularies_that_stayed_as_they_were_are_not_read(live: ComparedVersion) -> None:
    files = {"label.txt": {"sha256": "aa"}, "text.txt": {"sha256": "bb"}}
    listed = replace(described(live, files=files), profiles={})
    (live.folder / "text.txt").unlink()  # type: ignore[operator]
    (live.folder / "label.txt").unlink()  # type: ignore[operator]
    figures = judge(listed, listed, Gate()).to_json()["figures"]["ids_moved"]
    assert figures == {"label": 0.0, "text": 0.0}
