r"""What may be told of an exception that nobody foresaw: where it was raised and of which type, never what it says.

TensorFlow, tf.Transform and Beam print the batch that they fail on. So of a traceback only its frames and the types'
names are kept, without the lines of source, which may hold a password too.

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
OWN_FRAME = re.compile(r'"(?:.*/)?((?:pipeline|transforms)/(?!.*site-packages)[^"]*)", line (\d+)')


def without_values(text: str) -> str:
    """Keeps of a text, such as a log, the tracebacks: their frames and the names of the exceptions' types."""
    return "".join(kept for line in text.splitlines() if (kept := _kept(line)))


def _kept(line: str) -> str:
    if HEAD.match(line):
        return f"{line[:80]}\n"
    if frame := FRAME.match(line):
        return f"  {frame[1]}\n"
    found = TYPE.match(line)
    return f"{found[0]}\n" if found else ""


def frames_of(error: BaseException) -> str:
    """The traceback of an exception, and of those that it came of, without values."""
    return without_values("".join(traceback.format_exception(error)))


def told_of(error: BaseException) -> str:
    """One line: the exception's type, the type that it came of, and the last place of our own that it came through.

    An `ImportError` is told as it is: it names modules, and what to install is what the user wants to know.
    """
    if isinstance(error, ImportError):
        return f"{type(error).__name__}: {error}"
    lines = frames_of(error).splitlines()
    types = [line.rpartition(".")[2] for line in lines if TYPE.fullmatch(line)] or [type(error).__name__]
    places = [place for line in lines if (place := OWN_FRAME.search(line))]
    where = f" in {places[-1][1]}, line {places[-1][2]}" if places else ""
    return " from ".join(dict.fromkeys([types[-1], types[0]])) + where
