r"""Finds the true cause in the stack traces of a failed Flink job, without values of rows.

Beam's Java runner puts the worker's whole Python traceback into the message of a Java exception, below the frames of
everything that it passed through.

>>> trace = "Caused by: java.lang.IllegalStateException: call already closed\n\tat org.apache.beam.Fn(Fn.java:3)\n"
>>> cause_of(["org.apache.flink.runtime.JobException: Recovery is suppressed\n" + trace])[:43]
'a worker process died: call already closed;'
"""

import re
from collections.abc import Sequence

from recordmill.pipeline.redaction import redacted
from recordmill.pipeline.safe_tracebacks import summary_of_text

JAVA = re.compile(
    r"^(?:Caused by: |Suppressed: )?((?:[a-z_]\w*\.)+[A-Z][\w$]*)(?:: (.*))?$(?:\n\tat (\S+))?", re.MULTILINE
)
PYTHON = re.compile(r"Traceback \(most recent call last\):.*?(?=^\tat |^Caused by: |\Z)", re.MULTILINE | re.DOTALL)
DEAD_WORKER = (
    "call already closed",
    "Waited 3 minutes",  # of Beam's, for a worker that was about to begin
    "Process died with exit code",
    "UNAVAILABLE",
    "Call already cancelled",
    "CANCELLED: client cancelled",
    "CANCELLED: cancelled before receiving half close",
    "SDK harness disconnected",
    "Stream removed",
)
REMEDY = "if memory ran out: more of it, fewer slots a TaskManager, or RECORDMILL_WORKER_THREADS=1 for the workers"
KILLED = "exit code 137"  # 128 and SIGKILL
# The messages of Flink itself name machines, slots and times; those of other classes may hold a row.
SAFE = ("org.apache.flink.", "java.util.concurrent.TimeoutException", "java.net.", "akka.", "org.apache.pekko.")
WORDS = 300  # characters of a message


def cause_of(traces: Sequence[str]) -> str:
    """Names the cause of a job's failure, from its stack traces, the newest first."""
    text = "\n".join(traces)
    if traceback := PYTHON.search(text):
        return f"a worker raised {summary_of_text(traceback[0])}"
    found = [(match[1], match[2] or "", match[3] or "") for match in JAVA.finditer(text)]
    for _, message, _ in reversed(found):
        if any(sign in message for sign in DEAD_WORKER):
            return f"a worker process died{_reason(message)}: {_shown(message)}; {REMEDY}"
    for name, message, frame in reversed(found):
        if message and (name.startswith(SAFE) or frame.startswith("org.apache.flink.")):
            return f"{_short(name)}: {_shown(message)}"
    return _short(found[-1][0]) if found else "the cluster gives no reason"


def _reason(message: str) -> str:
    return ", most likely because memory ran out" if KILLED in message else ""


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(message: str) -> str:
    return redacted(message.strip())[:WORDS]
