"""How much a search has tried, and the most that it may try: counted, never timed, so a model gives one plan anywhere.

The most follows from the size of the cluster alone. It is far above what plans need that end within the band, so it
ends only searches that gain little. A plan whose search it ended shows that in its diagnosis.

The module counts; who tries candidates reports them here. Invariant: counts only grow.
"""

from dataclasses import dataclass

LOOKS_MIN = 6_000
"""Looks for a candidate that every search has: few brokers may need as many as some dozen."""
LOOKS_PER_BROKER = 250
"""Looks more for each broker."""
LOOKS_PER_REPLICA = 0.01
"""Looks more for each replica: brokers that hold more have more to hand over."""


@dataclass(slots=True)
class Effort:
    """Work of one search; mutable.

    >>> effort = Effort(candidates_max=100)
    >>> effort.look(60), effort.is_spent, effort.look(60), effort.is_spent
    (None, False, None, True)
    >>> effort.looks, effort.candidates
    (2, 120)
    """

    candidates_max: int
    """The search ends when it has scored so many."""
    candidates: int = 0
    """Replicas of a broker, and pairs of a replica and a target, that were scored."""
    looks: int = 0
    """Searches for a candidate: leaderships of a broker, its replicas, or an exchange with one partner."""
    edits: int = 0
    """Edits applied, those undone later included."""

    def look(self, candidates: int) -> None:
        """Count one search for a candidate that scored so many."""
        self.looks += 1
        self.candidates += candidates

    def score_anew(self, candidates: int) -> None:
        """Count so many candidates of a look that an edit has changed."""
        self.candidates += candidates

    def add(self, other: "Effort") -> None:
        """Count what has been tried beside the search, too."""
        self.candidates += other.candidates
        self.looks += other.looks
        self.edits += other.edits

    @property
    def is_spent(self) -> bool:
        """Whether the search must end."""
        return self.candidates >= self.candidates_max


def candidates_max(brokers: int, replicas: int, candidates_per_look: int) -> int:
    """Most candidates of a search for a cluster of this size.

    >>> candidates_max(brokers=10, replicas=1_000, candidates_per_look=500)
    4255000
    """
    looks = LOOKS_MIN + LOOKS_PER_BROKER * brokers + int(LOOKS_PER_REPLICA * replicas)
    return looks * candidates_per_look
