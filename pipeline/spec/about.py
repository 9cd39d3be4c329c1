"""The words about a dataset that a person writes once: for its card and its catalogue entry, not for its records."""

from typing import Annotated

from pydantic import Field, StringConstraints

from recordmill.pipeline.options import Options

Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=1000)]


class About(Options):
    """A dataset in words, for `README.md` and `croissant.json` of each version."""

    title: Line | None = None
    """The name for people; by default the dataset's `name`."""
    description: Text | None = None
    """The content of the dataset: some sentences, which may be Markdown."""
    license: Line | None = None
    """An SPDX identifier such as `CC-BY-4.0`, or the URL of a licence. Where it is not given, the card says unknown."""
    citation: Text | None = None
    """The work to cite, as BibTeX."""
    homepage: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=1000)] | None = None
    """A page on the dataset: a URL."""
    creators: tuple[Line, ...] = ()
    """The people or organizations who made it."""
    languages: tuple[Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$")], ...] = ()
    """The languages of its texts, such as `en` or `de-CH`."""
    tags: tuple[Line, ...] = ()
    """Words to find it by."""
