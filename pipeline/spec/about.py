"""The words about a dataset that a person writes once: for its card and its catalogue entry, not for its records."""

from typing import Annotated

from pydantic import Field, StringConstraints

from recordmill.pipeline.yaml_document import Options

LINE = r"^[^\r\n]+$"
WEB_PAGE = r"^https?://\S+$"
LANGUAGE = r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$"
FORMS = {
    LINE: "one line of text",
    WEB_PAGE: "a URL that begins with http:// or https://, without blanks",
    LANGUAGE: "a language's code, such as `en` or `de-CH`",
}
"""The meaning of each pattern, in the words of a message."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
Line = Annotated[str, StringConstraints(pattern=LINE, max_length=1000)]


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
    homepage: Annotated[str, Field(pattern=WEB_PAGE, max_length=1000)] | None = None
    """A page on the dataset: a URL."""
    creators: tuple[Line, ...] = ()
    """The people or organizations who made it."""
    languages: tuple[Annotated[str, Field(pattern=LANGUAGE)], ...] = ()
    """The languages of its texts, such as `en` or `de-CH`."""
    tags: tuple[Line, ...] = ()
    """Words to find it by."""
