"""Sends a build's end to a command, on its standard input, or to a URL, as the body of a POST.

>>> notify("tee /dev/stderr", {"end": "published"})        # doctest: +SKIP
>>> notify("https://example.com/hook", {"end": "failed"})  # doctest: +SKIP
"""

import json
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

COMMAND_SECONDS = 60.0
POST_SECONDS = 10.0
URLS = ("http://", "https://")


def notify(target: str, entry: Mapping[str, Any]) -> str | None:
    """Sends an entry of the history; gives a warning if it did not arrive."""
    body = json.dumps(entry).encode()
    return _post(target, body) if target.startswith(URLS) else _run(target, body)


def _post(url: str, body: bytes) -> str | None:
    """Posts to a URL; the warning names its host alone, because the path of a webhook may be its password."""
    host = "the URL of --notify"
    try:
        host = urlsplit(url).hostname or host
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310 - URLS
        with urllib.request.urlopen(request, timeout=POST_SECONDS):  # noqa: S310
            return None
    except urllib.error.HTTPError as error:
        return f"{host} was not notified: it answers {error.code}"
    except Exception as error:
        return f"{host} was not notified: {type(error).__name__}"


def _run(command: str, body: bytes) -> str | None:
    """Runs a command without a shell; its output is dropped."""
    try:
        words = shlex.split(command)
        if not words:
            return "--notify is empty: give a command or a URL"
        ended = subprocess.run(words, input=body, capture_output=True, timeout=COMMAND_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return f"the command of --notify took more than {COMMAND_SECONDS:.0f} seconds, and was ended"
    except (OSError, ValueError) as error:
        return f"the command of --notify did not start: {getattr(error, 'strerror', None) or error}"
    return f"the command of --notify ended with status {ended.returncode}" if ended.returncode else None
