"""Values of the JSON cluster model: how large a figure may be, and the one form of an error about a value."""

from assignor_core.errors import InputError

FIGURE_MAX = 1e30
"""Largest load and capacity: beyond any cluster's, and small enough that sums and products stay finite."""
SHOWN_MAX = 80
"""Characters of a value that an error shows."""


def misfit(name: str, value: object, allowed: str) -> InputError:
    """The error that names a field, the start of the value found, and the values allowed.

    >>> str(misfit("broker 1: rack", 7, "a string or null"))
    'broker 1: rack: found 7, allowed is a string or null'
    """
    shown = repr(value)
    return InputError(
        f"{name}: found {shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX - 3] + '...'}, allowed is {allowed}"
    )


def is_figure(value: object) -> bool:
    """Whether a JSON value is a number that a load may have.

    >>> [is_figure(value) for value in (0, 2.5, True, -1, float("nan"), 10**400, "1")]
    [True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= FIGURE_MAX
