"""What a field of a policy carries if users may set it: default, limits, unit and one whole sentence.

A policy is a frozen dataclass of values. Each of its fields that a setting sets is written as `name: type = knob(...)`.
Settings, conf/reference.yaml and the chart's schema are made of these fields (see `streaming.settings.fields`), so a
default, a limit or a description is in one place.
"""

import math
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeVar

from assignor_core.errors import InputError

WAIT_MAX_MS = 30 * 86_400_000
"""Longest time that a policy may wait for anything: 30 days, ms."""
KNOB = "knob"
"""Key of a `Knob` in the metadata of a field."""

Value = TypeVar("Value")


class Policy(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


@dataclass(frozen=True, slots=True)
class Knob:
    """Description and limits of one value; a limit that is None does not exist."""

    description: str
    unit: str | None = None
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    @property
    def text(self) -> str:
        """The description with the unit.

        >>> Knob("Control makes no new plan for this long.", "ms").text
        'Control makes no new plan for this long. Unit: ms.'
        """
        return f"{self.description} Unit: {self.unit}." if self.unit else self.description

    @property
    def limits(self) -> dict[str, float]:
        """The limits that exist, by their names in pydantic.

        >>> Knob("", ge=1, lt=2).limits
        {'ge': 1, 'lt': 2}
        """
        named = {"ge": self.ge, "gt": self.gt, "le": self.le, "lt": self.lt}
        return {name: limit for name, limit in named.items() if limit is not None}

    @property
    def allowed(self) -> str:
        """The limits in words.

        >>> [Knob("", **limits).allowed for limits in ({"ge": 0}, {"gt": 0}, {"ge": 0, "lt": 1}, {"ge": 1, "le": 9})]
        ['0 or more', 'above 0', '0 to below 1', '1 to 9']
        """
        low = f"above {self.gt}" if self.ge is None else f"{self.ge}"
        if self.lt is not None:
            return f"{low} to below {self.lt}"
        if self.le is not None:
            return f"{low} to {self.le}"
        return low if self.ge is None else f"{low} or more"

    def allows(self, number: float) -> bool:
        """Whether a number is finite and within the limits.

        >>> [Knob("", gt=0, le=1).allows(number) for number in (0, 0.5, 1, math.nan)]
        [False, True, True, False]
        """
        return (
            math.isfinite(number)
            and (self.ge is None or number >= self.ge)
            and (self.gt is None or number > self.gt)
            and (self.le is None or number <= self.le)
            and (self.lt is None or number < self.lt)
        )


def knob(
    default: Value,
    description: str,
    *,
    unit: str | None = None,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
) -> Value:
    """A field of a policy that a setting sets, as `dataclasses.field` makes one; its type is that of the default."""
    return field(default=default, metadata={KNOB: Knob(description, unit, ge, gt, le, lt)})


def knob_of(policy: type[Policy], name: str) -> tuple[Knob, object]:
    """What field `name` of a policy carries, and its default. Raises KeyError for a field that no setting sets."""
    found = policy.__dataclass_fields__[name]
    return found.metadata[KNOB], found.default


def check_limits(policy: Policy, name: str) -> None:
    """Raises InputError for the first number of a policy that is outside the limits of its field; None is allowed."""
    for one in fields(policy):
        known, value = one.metadata.get(KNOB), getattr(policy, one.name)
        if known and known.limits and value is not None and not known.allows(value):
            raise InputError(f"{name} {one.name}: found {value}, allowed is {known.allowed}")
