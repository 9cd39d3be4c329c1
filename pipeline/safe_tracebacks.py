r"""Formats unexpected exceptions: type and location, never the message, which may hold row values.

TensorFlow, tf.Transform and Beam print the batch that they fail on. So a traceback keeps only its frames and the types'
names, without the lines of source, which may hold a password.

>>> without_values('  File "a.py", line 3, in f\n    g("secret")\nValueError: the batch is [b"secret"]\n')
'  File "a.py", line 3, in f\nValueError\n'
"""

import re
import traceback

HEAD = re.compile(
    r"Traceback \(most recent call last\):$|During handling of the above exception|The above exception was the direct"
)
FRAME = re.compile(r'\s*(File "[^"\n]{1,300}", line \d+, in [\w<>.]+)')
TYPE = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit)(?=:|$)")
OWN_FRAME = re.compile(
    r'^[^"]*+"(?:[^"]{0,300}/)?((?:pipeline|transforms)/(?![^"]{0,300}site-packages)[^"]{0,300})", line (\d+)'
)


def without_values(text: str) -> str:
    """Keeps the tracebacks in a text such as a log: their frames, and the names of the exceptions' types."""
    return "".join(kept for line in text.splitlines() if (kept := _kept(line)))


def _kept(line: str) -> str:
    if HEAD.match(line):
        return f"{line[:80]}\n"
    if frame := FRAME.match(line):
        return f"  {frame[1]}\n"
    kind = TYPE.match(line)
    return f"{kind[0]}\n" if kind else ""


def frames_of(error: BaseException) -> str:
    """The traceback of an exception and of its causes, without values."""
    return without_values("".join(traceback.format_exception(error)))


def summary_of(error: BaseException) -> str:
    """One line: the exception's type, its first cause's type, and the last line of Recordmill that it passed.

    An `ImportError` keeps its message, which names modules, because the user needs to know what to install.
    """
    if isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    return summary_of_text(frames_of(error)) or type(error).__name__


def summary_of_text(text: str) -> str:
    """The same of a traceback as text, such as a remote worker's; empty if it names no exception."""
    lines = without_values(text).splitlines()
    types = [line.rpartition(".")[2] for line in lines if TYPE.fullmatch(line)]
    places = [place for line in lines if (place := OWN_FRAME.search(line))]
    where = f" in {places[-1][1]}, line {places[-1][2]}" if places else ""
    return " from ".join(dict.fromkeys([types[-1], types[0]])) + where if types else ""
