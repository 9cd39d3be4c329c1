"""A dataset in words, for its card and its catalogue entry; the records do not depend on them."""

from typing import Annotated

from pydantic import Field, StringConstraints

from recordmill.pipeline.options import Options

LINE = r"^[^\r\n]+$"
WEB_PAGE = r"^https?://\S+$"
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$"
FORMS = {
    LINE: "one line of text",
    WEB_PAGE: "a URL that begins with http:// or https://, without blanks",
    LANGUAGE: "a language's code, such as `en` or `de-CH`",
}
"""The wanted value in words, by pattern."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Line = Annotated[str, StringConstraints(pattern=LINE, max_length=1000)]


class About(Options):
    """A description for people: `README.md` and `croissant.json` of each version."""

    title: Line | None = None
    """The displayed name; by default the dataset's `name`."""
    description: Text | None = None
    """The content of the dataset: some sentences, Markdown allowed."""
    license: Line | None = None
    """An SPDX identifier such as `CC-BY-4.0`, or the URL of a licence. Without it the card says unknown."""
    citation: Text | None = None
    """The work to cite, as BibTeX."""
    homepage: Annotated[str, Field(pattern=WEB_PAGE, max_length=1000)] | None = None
    """The URL of a page about the dataset."""
    creators: tuple[Line, ...] = ()
    """The people or organizations behind it."""
    languages: tuple[Annotated[str, Field(pattern=LANGUAGE)], ...] = ()
    """The languages in the texts, such as `en` or `de-CH`."""
    tags: tuple[Line, ...] = ()
    """Search terms."""
