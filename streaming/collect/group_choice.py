"""Which consumer groups are sampled where there are more than `collect.groups_max`. Pure; knows neither Kafka nor time.

Most places go to the groups that matter: in turns the one with most lag and the one that has committed most recently,
as they were when they were last read. A tenth of the places goes round among all others, for some looks each, those
first that were never read: a new group, or one whose lag has grown meanwhile, is seen within a bounded number of looks.
A group that has a place keeps it unless another is clearly ahead, so that places don't change with every look.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import chain, zip_longest

ROUND_SHARE = 10
"""One place in so many goes round."""
TURN_LOOKS = 6
"""Looks that each turn lasts: commits show from the second look on, and a window needs some samples."""
AHEAD_FACTOR = 1.5
"""A group with a place loses it to a group with this many times its lag."""
AHEAD_LOOKS = 30
"""A group with a place loses it to a group that has committed so many looks later."""
FORGOTTEN_LOOKS = 30
"""A group that was not listed for so many looks is gone."""


@dataclass(slots=True)
class _Known:
    """A group as it was when it was last read."""

    read_at: int
    """Number of the look."""
    listed_at: int
    lag_records: int = 0
    committed: int | None = None
    """Sum of its committed offsets."""
    moved_at: int = 0
    """Number of the look that saw a commit last; 0 where none did."""


@dataclass(slots=True)
class GroupChoice:
    """Remembers each listed group by a few numbers. A fresh one begins with any groups, those with members first."""

    _look: int = 0
    _known: dict[str, _Known] = field(default_factory=dict)
    _kept: frozenset[str] = frozenset()
    _turn: frozenset[str] = frozenset()
    _turn_began: int = 0

    def choose(self, names: Collection[str], with_members: Collection[str], places: int) -> frozenset[str]:
        """At most `places` of `names` for the next look; all of them where they are no more."""
        self._look += 1
        self._forget(names)
        if len(names) <= places:
            self._kept, self._turn = frozenset(names), frozenset()
            return self._kept
        self._kept = frozenset(self._foremost(names, places - max(1, places // ROUND_SHARE)))
        others = set(names) - self._kept
        if self._look - self._turn_began >= TURN_LOOKS:
            self._turn_began, self._turn = self._look, frozenset()
        # Who has the turn stays; places that have become free meanwhile are given away.
        in_line = sorted(others, key=lambda name: (name not in self._turn, *self._place_in_line(name, with_members)))
        self._turn = frozenset(in_line[: places - len(self._kept)])
        return self._kept | self._turn

    def note(self, name: str, *, lag_records: int, committed: int | None) -> None:
        """What the look showed of a group: its lag, and its committed offsets added up, None if it has none."""
        known = self._known.get(name)
        moved = known is not None and committed != known.committed
        moved_at = self._look if moved else known.moved_at if known else 0
        self._known[name] = _Known(self._look, self._look, lag_records, committed, moved_at)

    def note_unread(self, names: Iterable[str]) -> None:
        """Groups that were asked for and gave no answer: their turn is over all the same."""
        for name in names:
            self._known.setdefault(name, _Known(self._look, self._look)).read_at = self._look

    def _forget(self, names: Collection[str]) -> None:
        """Forgets groups that have not been listed for long: their broker may just have been silent for a moment."""
        for name in names:
            if name in self._known:
                self._known[name].listed_at = self._look
        oldest = self._look - FORGOTTEN_LOOKS
        self._known = {name: known for name, known in self._known.items() if known.listed_at >= oldest}

    def _foremost(self, names: Collection[str], count: int) -> list[str]:
        """Returns the groups with most lag and those that committed last, in turns; of equals the first by name."""
        known = {name: self._known[name] for name in names if name in self._known}
        live = [name for name, group in known.items() if group.lag_records or group.moved_at]
        by_lag = sorted(live, key=lambda name: (-self._lag(name), name))
        by_time = sorted(live, key=lambda name: (-self._moved_at(name), name))
        in_turns = (name for name in chain(*zip_longest(by_lag, by_time)) if name is not None)
        return list(dict.fromkeys(in_turns))[:count]

    def _lag(self, name: str) -> float:
        return self._known[name].lag_records * (AHEAD_FACTOR if name in self._kept else 1.0)

    def _moved_at(self, name: str) -> int:
        moved_at = self._known[name].moved_at
        return moved_at + (AHEAD_LOOKS if name in self._kept and moved_at else 0)

    def _place_in_line(self, name: str, with_members: Collection[str]) -> tuple[int, bool, str]:
        """Sorts groups that were read longest ago first; of groups never read, the ones with members."""
        known = self._known.get(name)
        return known.read_at if known else 0, name not in with_members, name
