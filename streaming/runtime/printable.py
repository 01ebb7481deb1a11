"""Text of others made safe to print: names of groups, topics, clients and hosts are whatever somebody chose.

On a terminal an escape sequence in a name could clear the screen, forge a line or change the title. What a terminal
would act on is shown as Python writes it in a string.
"""

import re

_ACTED_ON = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0, C1), marks that change the direction of text, line separators, halves of surrogate pairs."""


def printable(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal acts on.

    >>> printable("pay\\x1b[2Jroll\\nok")
    'pay\\\\x1b[2Jroll\\\\nok'
    """
    return _ACTED_ON.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def printable_lines(text: str) -> str:
    """Returns `text` with nothing in it that a terminal acts on; the line breaks that we have put into it stay.

    >>> printable_lines("one\\n\\x07two")
    'one\\n\\\\x07two'
    """
    return "\n".join(map(printable, text.split("\n")))
