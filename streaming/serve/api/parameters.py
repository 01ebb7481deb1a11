"""Parameters of the API: each is described once, for reading requests and for the OpenAPI document."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.datastructures import QueryParams

from assignor_core.wording import counted
from streaming.serve.api.problems import ApiProblem

TIME_MAX_MS = 253_402_300_799_000
"""The last second of the year 9999: later times are no dates."""
VALUE_SHOWN = 100
"""Characters of a refused value that the answer repeats."""
INT_DIGITS_MAX = 15
INT_MAX = (1 << 31) - 1
"""The greatest id of a broker, or number of a partition, that Kafka's protocol has room for."""


@dataclass(frozen=True, slots=True)
class Characters:
    """Characters that a text may have: a class of a regular expression, one that Python and JSON Schema read alike."""

    within: str
    called: str

    @property
    def pattern(self) -> str:
        """The regular expression of a text of these characters, as JSON Schema has it."""
        return f"^{self.within}*$"

    def fit(self, text: str) -> bool:
        """Whether the text has no others."""
        return re.fullmatch(f"{self.within}*", text) is not None


NO_CONTROLS = Characters("[^\\u0000-\\u001f\\u007f-\\u009f]", "characters, none of them a control character")
OF_NAMES = Characters("[A-Za-z0-9._-]", "characters of A-Z a-z 0-9 . _ -")
OF_CURSORS = Characters("[A-Za-z0-9_-]", "characters of A-Z a-z 0-9 _ -")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a path or query: a whole number with its limits, or a text with its characters and length."""

    name: str
    meaning: str
    characters: Characters | None = None
    """Characters that a text may have; None for a number."""
    least: int = 0
    most: int = TIME_MAX_MS
    """The greatest number, or the greatest length of a text."""
    place: Literal["query", "path"] = "query"
    choices: tuple[str, ...] = ()
    """The texts that are allowed; empty where others are, too."""
    is_needed: bool = False
    """Whether a request without it is refused; one of a path always is."""
    may_be_empty: bool = False
    """Whether a text may have no character: Kafka has a consumer group of that name."""

    @property
    def _least_length(self) -> int:
        return 0 if self.may_be_empty else max(1, self.least)

    def value(self, text: str) -> Any:
        """The value; raises ApiProblem."""
        if self.choices:
            if text not in self.choices:
                raise ApiProblem(
                    400, f"{self.name}: {text[:VALUE_SHOWN]!r} is not allowed; allowed are {', '.join(self.choices)}"
                )
            return text
        if self.characters:
            problem = self._problem_of(text, self.characters)
            if problem:
                allowed = f"{self._least_length} to {self.most} {self.characters.called}"
                raise ApiProblem(400, f"{self.name}: must be {allowed}; {problem}")
            return text
        shown = text[:VALUE_SHOWN]
        if not re.fullmatch(r"-?[0-9]+", text) or len(text) > INT_DIGITS_MAX + 1:
            raise ApiProblem(400, f"{self.name}: {shown!r} is not a whole number of {self.least} to {self.most}")
        number = int(text)
        if not self.least <= number <= self.most:
            raise ApiProblem(400, f"{self.name}: {number} is not within {self.least} to {self.most}")
        return number

    def _problem_of(self, text: str, characters: Characters) -> str | None:
        """What is wrong with a text; None if it is allowed."""
        wrong = next((one for one in text if not characters.fit(one)), None)
        if wrong is not None:
            return f"{wrong!r} in {text[:VALUE_SHOWN]!r} is not allowed"
        if not self._least_length <= len(text) <= self.most:
            return f"{text[:VALUE_SHOWN]!r} has {counted(len(text), 'character', 'characters')}"
        return None

    def described(self) -> dict[str, Any]:
        """Returns the parameter as OpenAPI describes it."""
        limits: dict[str, Any] = {"type": "integer", "format": "int64", "minimum": self.least, "maximum": self.most}
        if self.characters:
            limits = {"type": "string", "minLength": self._least_length, "maxLength": self.most}
            limits |= {"pattern": self.characters.pattern}
        if self.choices:
            limits = {"type": "string", "enum": list(self.choices)}
        required = self.place == "path" or self.is_needed
        return {
            "name": self.name,
            "in": self.place,
            "required": required,
            "description": self.meaning,
            "schema": limits,
        }


LIMIT = Parameter("limit", "Most items of a page; fewer come where the answer would be too large", least=1, most=1000)
CURSOR = Parameter("cursor", "`next_cursor` of the page before", OF_CURSORS, most=8_000)
FROM = Parameter("from", "Start, inclusive, ms since 1970 UTC")
TO = Parameter("to", "End, exclusive, ms since 1970 UTC")
STEP = Parameter("step", "Length of a step, ms; where no table is as fine, steps are longer", least=1)
EXECUTION_ID = Parameter("execution_id", "The whole id of an execution", OF_NAMES, most=64, place="path")
BROKER_ID = Parameter("broker", "Broker id", most=INT_MAX, place="path")
PAGED = (LIMIT, CURSOR)
HISTORY = (FROM, TO, STEP, *PAGED)
PAST = (FROM, TO, *PAGED)


def read_query(query: QueryParams, known: Iterable[Parameter]) -> dict[str, Any]:
    """Values by name, of those that are given; raises ApiProblem for what is unknown, given twice or not allowed."""
    by_name: Mapping[str, Parameter] = {one.name: one for one in known}
    values: dict[str, Any] = {}
    for name, value in query.multi_items():
        if name not in by_name:
            allowed = ", ".join(by_name) or "none"
            raise ApiProblem(400, f"{name[:VALUE_SHOWN]!r} is not a parameter of this request; allowed are {allowed}")
        if name in values:
            raise ApiProblem(400, f"{name}: is given twice: give it once")
        values[name] = by_name[name].value(value)
    missing = next((one.name for one in by_name.values() if one.is_needed and one.name not in values), None)
    if missing is not None:
        raise ApiProblem(400, f"{missing}: is missing, and this request needs it")
    return values
