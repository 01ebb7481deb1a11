"""What closed windows leave behind for later decisions; made of windows alone, so any process can make it again."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from assignor_core.deciding.load_memory.episodes import Episodes
from assignor_core.deciding.load_memory.levels import Levels
from assignor_core.deciding.skew_windows import SkewWindow


@dataclass(frozen=True, slots=True)
class Watched:
    """What counts as skew, and how complete a window must be to count."""

    enter_ratio: float
    exit_ratio: float
    windows_over: int
    completeness_min: float

    @property
    def reference(self) -> float:
        """Midway between the level that is accepted and the one that is to be detected, as factors."""
        return math.sqrt(self.enter_ratio * self.exit_ratio)


@dataclass(frozen=True, slots=True, eq=False)
class LoadMemory:
    """By resource what is known after the window that ended at `newest_ms`."""

    newest_ms: int = 0
    changed_ms: int = 0
    """The newest move of replicas or leaders that the windows so far have shown."""
    levels: Mapping[str, Levels] = field(default_factory=lambda: MappingProxyType({}))
    episodes: Mapping[str, Episodes] = field(default_factory=lambda: MappingProxyType({}))

    def after(self, windows: Sequence[SkewWindow], watched: Watched, *, changed_ms: int) -> "LoadMemory":
        """With those of `windows`, oldest first, that are new; replicas or leaders were last moved at `changed_ms`."""
        memory = self
        for window in windows:
            if window.window_end_ms > memory.newest_ms:
                memory = memory._with(window, watched, changed_ms)
        return memory

    def _with(self, window: SkewWindow, watched: Watched, changed_ms: int) -> "LoadMemory":
        if window.completeness < watched.completeness_min:
            return replace(self, newest_ms=window.window_end_ms)
        memory = self
        if changed_ms > self.changed_ms and window.window_start_ms >= changed_ms:
            memory = replace(
                self,
                changed_ms=changed_ms,
                levels={resource: levels.changed() for resource, levels in self.levels.items()},
                episodes={resource: episodes.changed() for resource, episodes in self.episodes.items()},
            )
        levels, episodes = dict(memory.levels), dict(memory.episodes)
        for resource, shares in window.ratios.items():
            before = levels.get(resource) or Levels.none()
            levels[resource] = before.after(shares, end_ms=window.window_end_ms, reference=watched.reference)
            episodes[resource] = episodes.get(resource, Episodes()).after(
                shares,
                threshold=watched.enter_ratio,
                windows_min=watched.windows_over,
                grown=before.grown(watched.exit_ratio),
            )
        return LoadMemory(window.window_end_ms, memory.changed_ms, levels, episodes)


NOTHING_REMEMBERED = LoadMemory()
