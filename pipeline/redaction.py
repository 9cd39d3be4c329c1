"""URLs without what is secret in them: user and password, and the values after `?` or `#`.

Of an object store's URL, where a `?` may stand in a name or be a wildcard, only `?name=value` is taken for a query.

>>> redacted("cannot list s3://key:secret@bucket/a?token=abc: denied")
'cannot list s3://***@bucket/a?***: denied'
>>> public_url("s3://key:secret@bucket/part-?.csv")
's3://bucket/part-?.csv'
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 4  # characters: what is shorter is also found in words that are no secret
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^\s'\"`<>]*)")
WHOLE_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)(.*)", re.DOTALL)
# The second form has a slash in the password, as keys of AWS do; a port is none.
USER = re.compile(r"(?:[^/@]*:(?!\d+/)[^@]*|[^/]*)@(?:[^/]*@)?")
WEB_QUERY = re.compile(r"[?#].*", re.DOTALL)
QUERY = re.compile(r"[?#&;][\w.~-]+=.*", re.DOTALL)
LATE_QUERY = re.compile(r"(?<=\S)\?[\w.~-]+=[^\s'\"`<>]*[^\s'\"`<>:,]")  # behind a blank in a URL's path


def public_url(url: str, hidden: str = "") -> str:
    """Gives a URL without its secrets; `hidden` stands in their places. Any other text stays as it is."""
    match = WHOLE_URL.fullmatch(url)
    return url if match is None else _public(match, hidden)


def redacted(text: str, *urls: str) -> str:
    """Takes the secrets out of all URLs in a text, and wherever else the secrets of `urls` stand in it."""
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
    end = ":" if hidden and rest.endswith(":") else ""  # of the sentence: `cannot list URL: denied`
    return scheme + rest[: query.start()] + (hidden and f"?{hidden}{end}")


def _query(scheme: str) -> re.Pattern[str]:
    return WEB_QUERY if scheme.lower().startswith("http") else QUERY


def _secrets(url: str) -> Iterator[str]:
    """The parts of a URL that are secret, also as they are unquoted."""
    match = WHOLE_URL.fullmatch(url)
    if match is None:
        return
    scheme, rest = match.groups()
    found: list[str] = []
    if user := USER.match(rest):
        found += [user[0][:-1], *user[0][:-1].split(":", 1)]
    if query := _query(scheme).search(rest):
        found += [query[0][1:], *(pair.partition("=")[2] for pair in re.split("[?#&;]", query[0]))]
    for secret in found:
        yield from (form for form in (secret, unquote(secret)) if len(form) >= SHORTEST)
