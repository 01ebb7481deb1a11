"""The command of `rebalancer roll --exec` that restarts one broker: its words, and its process.

No shell reads the words. A host that a program could misread is refused.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable

from streaming.errors import RefusedForSafety, RollStopped, UsageProblem
from streaming.runtime.processes import TERMINATE_GRACE_S, die_with_parent

HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)
PLACES = ("{host}", "{broker}")


def template_of(command: str) -> tuple[str, ...]:
    """The words of `--exec`; no shell reads them."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise UsageProblem(f"--exec {command!r}: {error}") from None
    if not words or shutil.which(words[0]) is None:
        raise UsageProblem(f"--exec {command!r}: there is no program {words[0] if words else ''!r}")
    return words


def filled(template: Iterable[str], host: str, broker: int) -> tuple[str, ...]:
    """The words of a command for one broker. Raises RefusedForSafety for a host that a program could misread.

    >>> filled(("systemctl", "--host", "{host}", "restart", "kafka@{broker}"), "k1.example", 7)
    ('systemctl', '--host', 'k1.example', 'restart', 'kafka@7')
    """
    if HOST.fullmatch(host) is None:
        raise RefusedForSafety(
            f"broker {broker}: host {host!r} is not passed to a command, which may misread it: restart it by hand"
        )
    values = (shlex.quote(host), str(broker))
    words = []
    for word in template:
        for place, value in zip(PLACES, values, strict=True):
            word = word.replace(place, value)
        words.append(word)
    return tuple(words)


class RestartCommand:
    """A command that restarts one broker; it ends with this process."""

    def __init__(self, words: tuple[str, ...]) -> None:
        try:
            # A group of its own: Ctrl-C ends this command first. Standard output belongs to programs, so both go to
            # standard error.
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True, preexec_fn=die_with_parent
            )
        except OSError as error:
            raise RollStopped(f"--exec: {words[0]}: {error.strerror}") from None

    def code(self) -> int | None:
        """What the command ended with; None while it runs."""
        return self._process.poll()

    def end(self) -> None:
        """End the command if it still runs."""
        self._process.terminate()
        try:
            self._process.wait(TERMINATE_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
