"""The options for duplicates, rows of one content: counted, left out, brought into one split, or refused.

    duplicates: same_split
    duplicates: {action: drop, near: true}

The algorithm is in `pipeline.build.duplicates`.
"""

from typing import Literal

from pydantic import Field, model_validator

from recordmill.pipeline.options import Options

DISTANCE = 6
"""106 of 1.3 million pairs of emoji are nearer, variants of one drawing, and 99 % of copies at half the size (docs)."""
Action = Literal["keep", "drop", "same_split", "fail"]


class Duplicates(Options):
    """The treatment of rows of one content."""

    action: Action = "keep"
    """`keep`: they are counted. `drop`: the first stays. `same_split`: all go to the first one's split. `fail`: a
    build with any ends, and publishes nothing. All but `keep` read the data once more before."""
    near: bool = False
    """Whether images that look alike count as equal: scaled, encoded again, a little brighter or cropped."""
    distance: int = Field(default=DISTANCE, ge=0, le=8)
    """With `near`: the most of the 64 bits of two images' hashes that may differ."""

    @model_validator(mode="after")
    def _check(self) -> "Duplicates":
        if self.distance != DISTANCE and not self.near:
            raise ValueError("`distance` belongs to `near: true`")
        return self
