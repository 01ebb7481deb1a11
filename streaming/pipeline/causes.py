"""What an error of Spark comes down to, in one line. Errors of Java and of Python stand in one another there."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError

from streaming.tables.object_stores import advice

CAUSES_MAX = 20
TRACEBACK = "Traceback (most recent call last):"
"""Marks the errors of Python code that Spark called: Spark passes on their text alone."""
STACK_TRACE = "\n\nJVM stacktrace:"
QUERY = "\n=== Streaming Query ==="
OF_JAVA = (": ", "Caused by: ")
"""How the lines of a Java error begin that name it and its causes, outermost first."""
FRAMES = re.compile(r"\n\s+(at |\.\.\. \d+ more)[^\n]*")
SHORT_MAX = 600
"""Length of an error's text, characters, that Spark may search (`with_short_errors`). In a thread with a stack of 1 MB
1,000 characters can be searched, and 2,000 cannot.
"""
CAUSE_MAX = 350
"""Length of the innermost cause within it."""
_OWN = re.compile(r"^streaming\.errors\.\w+: ")
_PACKAGE = re.compile(r"^(\w+\.)+(?=\w+(: |$))")


def reason(error: object) -> str:
    """What the error and its innermost cause say; of code of ours that Spark called, what that has raised.

    >>> reason(ConnectionError("java.net.ConnectException: Connection refused\\nand more"))
    'ConnectException: Connection refused'
    """
    lines = [_line(text) for text in _texts(error)]
    shown, innermost = lines[0], lines[-1]
    if (innermost.partition(": ")[2] or innermost) not in shown:
        shown = f"{shown}: {innermost}"
    return shown + advice(shown)


def with_short_errors(write: Callable[[Any, int], object]) -> Callable[[Any, int], None]:
    """Return `write`, a function for `foreachBatch`, so that an error of Java comes without its stack frames.

    If a query is stopped within a batch, Spark searches the text of the batch's error for an interruption. Spark's
    regular expression (`StreamExecution.PROXY_ERROR`, up to 4.2) recurses for each character behind "Py4JJavaError".
    With the frames of a stack it ends in a StackOverflowError, which kills the query's thread, and hides the error.
    """

    def short(batch: Any, batch_id: int) -> None:
        try:
            write(batch, batch_id)
        except Py4JJavaError as error:
            # By the name of the class Spark knows the error for one of Java.
            text = f"py4j.protocol.Py4JJavaError: {without_frames(str(error))}"
            raise Py4JError(text).with_traceback(error.__traceback__) from None

    return short


def without_frames(text: str) -> str:
    """The error and its causes, a line each; of a long text the beginning and the innermost cause.

    >>> without_frames("o1.count.\\n: E: x\\n\\tat a.b(C.java:1)\\nCaused by: F\\n\\t... 3 more\\n")
    'o1.count.\\n: E: x\\nCaused by: F\\n'
    """
    short = FRAMES.sub("", text)
    if len(short) <= SHORT_MAX:
        return short
    # The innermost cause begins with its class, and a store's answer ends with what it refuses: neither may go.
    cause = _cut(short[max(0, short.rfind("\nCaused by: ")) :], CAUSE_MAX, 2 / 3)
    return _cut(short, SHORT_MAX - len(cause), 0.0) + cause


def _cut(text: str, length: int, share_of_end: float) -> str:
    """The beginning and the end of a text that is longer, as many characters as `length` in all."""
    if len(text) <= length:
        return text
    end = round(length * share_of_end)
    return f"{text[: length - end - 3]}...{text[len(text) - end :]}"


def _texts(error: object) -> Iterator[str]:
    """What each of the error and its causes says, outermost first."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else error
    for _ in range(CAUSES_MAX):
        if isinstance(cause, JavaObject):
            text, cause = str(cause.toString()), cause.getCause()
        else:
            # PySpark has read the causes of an error of Java, and keeps them here alone.
            text, cause = str(cause) or type(cause).__name__, getattr(cause, "_cause", None)
        yield text
        if cause is None:
            return


def _line(text: str) -> str:
    text = text.partition(STACK_TRACE)[0].partition(QUERY)[0]
    line = (_raised(text) if TRACEBACK in text else None) or (text.splitlines() or [""])[0]
    return _PACKAGE.sub("", _OWN.sub("", line))


def _raised(text: str) -> str | None:
    """The line of a traceback that names what was raised; None where the traceback was cut off."""
    lines = [line for line in text.rpartition(TRACEBACK)[2].splitlines() if line and not line[0].isspace()]
    of_java = [line.removeprefix(begin) for line in lines for begin in OF_JAVA if line.startswith(begin)]
    return of_java[-1] if of_java else next(iter(lines), None)
