"""Takes the secrets out of URLs: user and password, and everything after `?` or `#`.

In an object store's URL, where a `?` may be part of a name or a wildcard, only `?name=value` counts as a query.

>>> redacted("cannot list s3://key:secret@bucket/a?token=abc: denied")
'cannot list s3://***@bucket/a?***: denied'
>>> public_url("s3://key:secret@bucket/part-?.csv")
's3://bucket/part-?.csv'
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 4  # characters: shorter secrets also occur inside ordinary words
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^\s'\"`<>]*)")
WHOLE_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(.*)", re.DOTALL)
# The first form allows slashes in the password, as in keys of AWS, but is not a port.
USER = re.compile(r"(?:[^/@]*:(?!\d+/)[^@]*|[^/]*)@(?:[^/]*@)?")
WEB_QUERY = re.compile(r"[?#].*", re.DOTALL)
QUERY = re.compile(r"[?#&;][\w.~-]+=.*", re.DOTALL)
LATE_QUERY = re.compile(r"(?<=\S)\?[\w.~-]+=[^\s'\"`<>]*[^\s'\"`<>:,]")  # behind a blank in a URL's path


def public_url(url: str, hidden: str = "") -> str:
    """Replaces a URL's secrets by `hidden`; leaves any other text as it is."""
    match = WHOLE_URL.fullmatch(url)
    return url if match is None else _public(match, hidden)


def redacted(text: str, *urls: str) -> str:
    """Hides the secrets of all URLs in a text, and the secrets of `urls` wherever else it holds them."""
    for secret in sorted({secret for url in urls for secret in _secrets(url)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return LATE_QUERY.sub(f"?{HIDDEN}", URL.sub(lambda match: _public(match, HIDDEN), text))


def _public(match: re.Match[str], hidden: str) -> str:
    scheme, rest = match.groups()
    if user := USER.match(rest):
        rest = (hidden and f"{hidden}@") + rest[user.end() :]
    query = _query(scheme).search(rest)
    if query is None:
        return scheme + rest
    end = ":" if hidden and rest.endswith(":") else ""  # part of the sentence: `cannot list URL: denied`
    return scheme + rest[: query.start()] + (hidden and f"?{hidden}{end}")


def _query(scheme: str) -> re.Pattern[str]:
    return WEB_QUERY if scheme.lower().startswith("http") else QUERY


def _secrets(url: str) -> Iterator[str]:
    """The secret parts of a URL, quoted and unquoted."""
    match = WHOLE_URL.fullmatch(url)
    if match is None:
        return
    scheme, rest = match.groups()
    secrets: list[str] = []
    if user := USER.match(rest):
        secrets += [user[0][:-1], *user[0][:-1].split(":", 1)]
    if query := _query(scheme).search(rest):
        secrets += [query[0][1:], *(pair.partition("=")[2] for pair in re.split("[?#&;]", query[0]))]
    for secret in secrets:
        yield from (form for form in (secret, unquote(secret)) if len(form) >= SHORTEST)
