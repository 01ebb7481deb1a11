"""Load that comes back at the same time each day or week: what past days have shown of each broker, and of all."""

from assignor_core.deciding.recurring.history import NO_HISTORY, RecurringLoad
from assignor_core.deciding.recurring.recurrence import Recurrence, recurrence_of

__all__ = ["NO_HISTORY", "Recurrence", "RecurringLoad", "recurrence_of"]
