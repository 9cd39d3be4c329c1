r"""Text safe to show: URLs without secrets, control characters escaped, tracebacks without values.

A URL's secrets are its user and password, and everything after `?` or `#`. In an object store's URL a `?` may belong to
a name or a wildcard, so only `?name=value` counts as a query. Messages hold untrusted text: each step takes linear time
(`tests/test_linear_time.py`).

A file's name, a class or an exception's message may hold sequences that clear a terminal's screen, set its title, or
reverse the writing direction. Line ends and tabs stay; invisible characters become visible.

TensorFlow, tf.Transform and Beam print a failing batch. So a traceback keeps only its frames and the types' names:
messages may hold row values, lines of source a password.

>>> redacted("cannot list s3://key:secret@bucket/a?token=abc: denied")
'cannot list s3://***@bucket/a?***: denied'
>>> public_url("s3://key:secret@bucket/part-?.csv")
's3://bucket/part-?.csv'
>>> cut("s3://key:secret@bucket/" + "a" * 100, 40)
's3://***… [100 more] …aaaaaaaa'
>>> printable("cat\x1b[2J\u202etxt")
'cat\\x1b[2J\\u202etxt'
>>> without_values('  File "a.py", line 3, in f\n    g("secret")\nValueError: the batch is [b"secret"]\n')
'  File "a.py", line 3, in f\nValueError\n'
"""

import re
import traceback
import unicodedata
from collections.abc import Iterator
from typing import TextIO
from urllib.parse import unquote

HIDDEN = "***"
SHORTEST = 4  # characters: shorter secrets also occur inside ordinary words
LONGEST_SPACED = 500  # characters of a password with blanks or quotes; beyond, an `@` belongs to the sentence
NOTE = 24  # characters of `… [1,000,000,000 more] …`
_IN_SCHEME = "[A-Za-z0-9+.-]"
_BREAKS = r"\s'\"`<>"  # the end of a URL in a sentence
_AT = "(?:@|%(?:25)*+40)"
_NO_AT = "%(?!(?:25)*+40)"
_PORT = rf"\d++(?:[{_BREAKS}/),.;:\]]|\Z)"
_HOST_IN_BRACKETS = r"\[[^\]/@\s]*+\]"

WHOLE_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+://)(.*)", re.DOTALL)
# The password may hold slashes, as AWS keys do, but is not a port. So may the user, if a password follows.
_SLASHED = (
    rf"(?!{_HOST_IN_BRACKETS})(?:[^/@:%?#{_BREAKS}]|{_NO_AT})*+/(?:[^@:%?#{_BREAKS}]|{_NO_AT})*+:(?!/|{_PORT})"
    rf"(?:[^@%{_BREAKS}]|{_NO_AT})*+"
)
USER = re.compile(
    rf"(?:(?!{_HOST_IN_BRACKETS})(?:[^/@:%]|{_NO_AT})*+(?::(?!\d++/)(?:[^@%]|{_NO_AT})*+)?|{_SLASHED}){_AT}(?:[^/@]*+@)*+"
)
# It also matches without an `@`: no word is searched twice.
SLASHED_USER = re.compile(rf"(?<!{_IN_SCHEME})({_IN_SCHEME}*+:/++){_SLASHED}(?P<at>{_AT}(?:[^/@{_BREAKS}]*+@)*+)?")
# A user's name follows `scheme:/`, `scheme://`, or `//` at the beginning of a word.
USER_BEGINS = re.compile(
    rf"(?:(?<!{_IN_SCHEME}){_IN_SCHEME}*+:/++|(?<![^{_BREAKS}(=,\[{{])//++)(?!{_HOST_IN_BRACKETS})"
    rf"(?P<name>(?:[^/@:%'\"`<>]|{_NO_AT})*+)(?P<end>{_AT}|:(?!\s|{_PORT}))"
)
PASSWORD = re.compile(rf"(?:[^@%{_BREAKS}]|{_NO_AT})*+")
AT = re.compile(_AT)
MORE_OF_IT = re.compile(rf"(?:[^/@{_BREAKS}]*+@)*+")  # a password with `@`
BLANK = re.compile(r"\s")
URL = re.compile(rf"(?<!{_IN_SCHEME})({_IN_SCHEME}*+:/++)([^{_BREAKS}]*+)")
CODED_URL = re.compile(
    rf"(?<!{_IN_SCHEME})({_IN_SCHEME}*+(?::|%(?:25)*+3a)(?:/|%(?:25)*+2f)++)([^{_BREAKS}]*+)", re.IGNORECASE
)
CODED_SECRET = re.compile("[@?#;]|%(?:25)*+(?:40|3f|23|3b)", re.IGNORECASE)
WEB_QUERY = re.compile(r"(?:[?#]|;[\w.~-]++=).*", re.DOTALL)
QUERY = re.compile(r"[?#&;][\w.~-]++=.*", re.DOTALL)
LATE_QUERY = re.compile(rf"(?<=\S)\?[\w.~-]++=[^{_BREAKS}]*[^{_BREAKS}:,]")  # behind a blank in a URL's path


def public_url(url: str, hidden: str = "") -> str:
    """Replaces a URL's secrets by `hidden`; returns other text unchanged."""
    match = WHOLE_URL.fullmatch(url)
    if match is None:
        return url
    scheme, rest = match.groups()
    if user := USER.match(rest):
        rest = (hidden and f"{hidden}@") + rest[user.end() :]
    return scheme + _without_query(scheme, rest, hidden)


def redacted(text: str, *urls: str) -> str:
    """Hides the secrets of all URLs in a text, and all other occurrences of the secrets of `urls`."""
    for secret in sorted({secret for url in urls for secret in _secrets(url)}, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = SLASHED_USER.sub(lambda url: f"{url[1]}{HIDDEN}@" if url["at"] else url[0], text)
    text = CODED_URL.sub(_public_coded, "".join(_without_users(text)))
    return LATE_QUERY.sub(f"?{HIDDEN}", URL.sub(_public, text))


def cut(value: object, most: int = 80) -> str:
    """Shortens a text for a message: hides its secrets, then replaces its middle by the number of characters."""
    text = redacted(str(value))
    if len(text) <= most:
        return text
    half = (most - NOTE) // 2
    return f"{text[:half]}… [{len(text) - 2 * half:,} more] …{text[len(text) - half :]}"


def _without_users(text: str) -> Iterator[str]:
    """Yields the parts of a text, with `***@` for each user and password."""
    position = 0
    while begin := USER_BEGINS.search(text, position):
        end, is_user = _user_end(text, begin)
        yield text[position : begin.start("name") if is_user else end]
        if is_user:
            yield f"{HIDDEN}@"
        position = end
    yield text[position:]


def _user_end(text: str, begin: re.Match[str]) -> tuple[int, bool]:
    """Returns the end of a user's name and password; if there are none, the position to continue at."""
    end, is_spaced = begin.end(), BLANK.search(begin["name"]) is not None
    if begin["end"] != ":":
        return (end, False) if is_spaced else (_end(MORE_OF_IT.match(text, end), end), True)
    word_end = _end(PASSWORD.match(text, end), end)
    at = AT.match(text, word_end)
    if at and not is_spaced:
        return _end(MORE_OF_IT.match(text, at.end()), at.end()), True
    spaced, found, _ = text[end : end + LONGEST_SPACED].partition("@")
    if found and "://" not in spaced:
        end += len(spaced) + 1
        return _end(MORE_OF_IT.match(text, end), end), True
    return (end if at else word_end), False


def _end(match: re.Match[str] | None, otherwise: int) -> int:
    return otherwise if match is None else match.end()


def _public(url: re.Match[str]) -> str:
    scheme, rest = url.groups()
    is_url = "//" in scheme or scheme.lower().startswith("http")
    return scheme + (_without_query(scheme, rest, HIDDEN) if is_url else rest)


def _public_coded(url: re.Match[str]) -> str:
    """Hides a percent-coded URL with a user or a query as a whole: its host is unreadable anyway."""
    scheme, rest = url.groups()
    return f"{scheme}{HIDDEN}" if "%" in scheme and CODED_SECRET.search(rest) else url[0]


def _without_query(scheme: str, rest: str, hidden: str) -> str:
    query = _query(scheme).search(rest)
    if query is None:
        return rest
    end = ":" if hidden and rest.endswith(":") else ""  # part of the sentence: `cannot list URL: denied`
    return rest[: query.start()] + (hidden and f"?{hidden}{end}")


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


COMMAND = "recordmill"
KEPT = "\n\t"
STEERING = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories: control, format (direction, zero width), surrogate, line and paragraph separators."""


def printable(text: str) -> str:
    """Escapes each control character of a text; idempotent."""
    if text.isprintable():
        return text
    steering = {sign for sign in {*text} - {*KEPT} if unicodedata.category(sign) in STEERING}
    return "".join(ascii(sign)[1:-1] if sign in steering else sign for sign in text)


def count(number: int, noun: str) -> str:
    """Formats a number of things: `1 shard`, `1,200 shards`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def say(message: str, file: TextIO) -> None:
    """Prints a message, each line after the command's name, without the secrets of URLs."""
    for line in redacted(message).split("\n"):
        print(f"{COMMAND}: {printable(line)}", file=file)


HEAD = re.compile(
    r"Traceback \(most recent call last\):$|During handling of the above exception|The above exception was the direct"
)
FRAME = re.compile(r'\s*(File "[^"\n]{1,300}", line \d+, in [\w<>.]+)')
TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit)(?=:|$)")
OWN_FRAME = re.compile(
    r'^[^"]*+"(?:[^"]{0,300}/)?((?:pipeline|transforms)/(?![^"]{0,300}site-packages)[^"]{0,300})", line (\d+)'
)


def without_values(text: str) -> str:
    """Keeps only the tracebacks of a text such as a log: their frames, and the exceptions' types."""
    kept = list[str]()
    for line in text.splitlines():
        if HEAD.match(line):
            kept.append(f"{line[:80]}\n")
        elif frame := FRAME.match(line):
            kept.append(f"  {frame[1]}\n")
        elif kind := TYPE.match(line):
            kept.append(f"{kind[0]}\n")
    return "".join(kept)


def frames_of(error: BaseException) -> str:
    """Formats an exception's traceback, causes included, without values."""
    return without_values("".join(traceback.format_exception(error)))


def summary_of(error: BaseException) -> str:
    """Returns a line: types of the exception and its first cause, and our last line; an `ImportError`'s message."""
    if isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    return summary_of_text(frames_of(error)) or type(error).__name__


def summary_of_text(text: str) -> str:
    """Returns the same for a traceback as text, such as a remote worker's; "" if it names no exception."""
    lines = without_values(text).splitlines()
    types = [line.rpartition(".")[2] for line in lines if TYPE.fullmatch(line)]
    places = [place for line in lines if (place := OWN_FRAME.search(line))]
    where = f" in {places[-1][1]}, line {places[-1][2]}" if places else ""
    return " from ".join(dict.fromkeys([types[-1], types[0]])) + where if types else ""
