"""The gate: limits on changes from the live version to a new one. `pipeline.compare` computes the figures.

gate: {rows_lost: 0.05, features: {age: {psi: 0.1}, comment: false}}
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from recordmill.pipeline.errors import WrongValueError, did_you_mean
from recordmill.pipeline.yaml_document import Options

Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Distance = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class FeatureGate(Options):
    """The limits for one feature; by default the gate's."""

    missing: Share | None = None
    """The rise of the share of rows without a value."""
    l_infinity: Share | None = None
    """The largest difference of one name's share."""
    names_lost: Share | None = None
    """The former share of a name that disappeared."""
    jensen_shannon: Share | None = None
    """The Jensen–Shannon divergence of names, numbers, or lengths of texts."""
    psi: Distance | None = None
    """The population stability index of numbers, or of lengths of texts."""
    shift: Distance | None = None
    """The shift of the middle half of numbers, in the range of the middle 80 %."""
    out_of_vocabulary: Share | None = None
    """The rise of the share of unknown names or words."""
    appearance: Distance | None = None
    """The shift of images' brightness, saturation, colours or sharpness."""
    pixels: Distance | None = None
    """The shift of pixels' mean or standard deviation, in standard deviations."""
    ids_moved: Share | None = None
    """The share of names or words with another id than before."""


OR_FALSE = Discriminator(lambda value: "false" if value is False else "limits")
Limits = Annotated[Annotated[FeatureGate, Tag("limits")] | Annotated[Literal[False], Tag("false")], OR_FALSE]


class Gate(Options):
    """The limits on changes from the live version to a new one; null: unlimited."""

    min_rows: int = Field(default=100, ge=1, strict=True)
    """Shares of fewer rows, in either version, are not judged."""
    min_values: int = Field(default=500, ge=1, strict=True)
    """Distributions of fewer values, in either version, are not judged: they differ by chance alone. Two samples of 200
    rows of one distribution breach `psi` in 7 of 100 cases, of 500 rows in none of 4,000."""
    rows_lost: Share | None = 0.1
    """The share of records lost, in all and in each split. A split without any left is always judged."""
    rows_gained: Distance | None = None
    """The share of records gained, in all and in each split: 1 is twice as many."""
    rows_short: Share | None = 0.4
    """The share by which a new span's rows fall short of the median of earlier spans, from five spans on. The default
    falls to 0.1 after two weeks if the days are steady; a limit given here stays."""
    rejects: Share | None = 0.01
    """The rise of the share of rejected rows."""
    filtered: Share | None = 0.05
    """The change of the share of rows that `filter` leaves out, up or down, by its reason."""
    duplicates: Share | None = 0.05
    """The rise of the share of records with a duplicate in the same split."""
    leakage: Share | None = 0.01
    """The rise of the share of records with a duplicate in another split."""
    schema_changes: Literal["unexpected", "any"] | None = "unexpected"
    """Features lost or changed in type or shape. unexpected: despite equal options; any: always; null: never."""
    missing: Share | None = 0.05
    """The rise of the share of rows without a value, by feature and split."""
    l_infinity: Share | None = 0.1
    """The largest difference of one name's share, by category and split."""
    names_lost: Share | None = 0.0
    """The former share of a name that disappeared, by category, if it had `min_values`."""
    jensen_shannon: Share | None = None
    """The Jensen–Shannon divergence of names, numbers, or lengths of texts, by feature and split."""
    psi: Distance | None = 0.25
    """The population stability index of numbers, or of lengths of texts, by feature and split."""
    shift: Distance | None = 0.05
    """The shift of the middle half's mean, beyond chance, in the live middle 80 %'s range, by feature and split."""
    out_of_vocabulary: Share | None = 0.05
    """The rise of the share of names or words missing in the live version's vocabulary, by feature and split."""
    appearance: Distance | None = 0.1
    """The largest `shift` of sampled images' brightness, saturation, blue, red, sharpness, by feature and split."""
    pixels: Distance | None = 0.25
    """The shift of pixels' mean or standard deviation, in standard deviations of the live version, by image feature."""
    ids_moved: Share | None = 0.0
    """The share of names with another id than before, by category that keeps its ids. Texts and `classes: fresh` are
    judged only if `features` gives a limit: their ids follow the counts of each build."""
    features: dict[str, Limits] = {}
    """Limits for single features; `false`: the feature is not judged."""

    def limit(self, rule: str, feature: str) -> float | None:
        """Returns the limit of a rule for a feature; None: unlimited."""
        own = self.features.get(feature)
        if own is False:
            return None
        limit: float | None = getattr(own if rule in self.given(feature) else self, rule)
        return limit

    def given(self, feature: str) -> set[str]:
        """Returns the rules with a limit in `features` for a feature."""
        return own.model_fields_set if (own := self.features.get(feature)) else set()

    def check(self, features: Mapping[str, Any], *, may_be_others: bool) -> None:
        """Checks features, unless preprocessing may add some (`may_be_others`), and limits. Raises: WrongValueError."""
        for name, own in self.features.items():
            feature = features.get(name)
            if feature is None and not may_be_others:
                near = did_you_mean(name, features)
                message = f"there is no feature '{name}' among {', '.join(features)}{near}"
                raise WrongValueError(message, "gate", "features", name)
            if feature is None or own is False:
                continue
            known = feature.limits
            for rule in (rule for rule in FeatureGate.model_fields if rule in own.model_fields_set - {*known}):
                message = f"does not apply to the kind {feature.kind}: its limits are {', '.join(known)}"
                raise WrongValueError(message, "gate", "features", name, rule)


GateOrFalse = Annotated[Annotated[Gate, Tag("limits")] | Annotated[Literal[False], Tag("false")], OR_FALSE]
"""`gate: false` publishes every build."""
