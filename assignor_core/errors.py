"""The errors of the core, split by what the caller can do about them.

    CoreError               anything this package raises on purpose
      InputError            fix the input: a value is outside what is allowed; nothing was changed
      PlanTampered          the plan's content is not what its id says; make a new plan

Messages are one line and name the thing, the value found and the value allowed.
"""


class CoreError(Exception):
    """Root of the tree."""


class InputError(CoreError):
    """A value is outside what is allowed; the message names thing, value found and value allowed."""


class PlanTampered(CoreError):
    """The content of a plan does not hash to its id."""
