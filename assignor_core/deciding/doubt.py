"""Why a broker above the threshold may need no plan: noise, or a skew that ends by itself as others did before it."""

from assignor_core.deciding.load_memory import HORIZON_WINDOWS, LASTING_SIGMAS, LoadMemory

PLAN_NOISE_MAX = 0.03
"""A plan rests on so many windows that noise is at most this part of a broker's mean load over them ..."""
PLAN_WINDOWS_MAX = 30
"""... but on no more than these."""
GROWN_SIGMAS = 4.0
"""In place of `LASTING_SIGMAS` where the broker's level has grown: that is evidence, too."""
BURST_SIGMAS = 2.0
"""A broker that is further above its level than so many times its noise has a burst."""
GAIN_SIGMAS = 2.0
"""A gain of so many times the noise of the windows that a plan rests on is no noise."""


def is_noise(memory: LoadMemory, resource: str, broker: int) -> str | None:
    """Why the broker's load is no more than its noise explains, or None. The broker must be known."""
    levels = memory.levels[resource]
    if levels.has_risen(broker, GROWN_SIGMAS if _grown_to(memory, resource, broker) else LASTING_SIGMAS):
        return None
    return f"the load of broker {broker} changes by {levels.noise(broker):.0%} from window to window: this may be noise"


def is_passing(memory: LoadMemory, resource: str, broker: int) -> str | None:
    """Why the skew is likely to end by itself soon, or None. The broker must be known."""
    episodes = memory.episodes[resource]
    windows = episodes.windows_of(broker)
    if not windows or episodes.lasts(windows) or _comes_of_growth(memory, resource, broker):
        return None
    alike = [length for length in episodes.ended if length >= windows]
    soon = sum(length < windows + HORIZON_WINDOWS for length in alike)
    return (
        f"of {len(alike)} earlier skews that lasted for {windows} windows or more, {soon} ended by themselves within "
        f"{HORIZON_WINDOWS} windows more"
    )


def _comes_of_growth(memory: LoadMemory, resource: str, broker: int) -> bool:
    """Whether the broker had grown before, and noise alone takes it from there to its shares above the threshold.

    Noise ends such a skew now and then, but not for long.
    """
    level = _grown_to(memory, resource, broker)
    rise = memory.episodes[resource].mean_over(broker) - level
    return level > 0 and rise < BURST_SIGMAS * memory.levels[resource].noise(broker)


def _grown_to(memory: LoadMemory, resource: str, broker: int) -> float:
    """The level that the broker had grown to before its skew, as a logarithm; 0 where it had not grown."""
    episodes = memory.episodes.get(resource)
    return 0.0 if episodes is None else episodes.grown_to(broker)


def is_known(memory: LoadMemory, resource: str, broker: int) -> bool:
    """Whether enough windows were seen to know the broker's noise."""
    levels = memory.levels.get(resource)
    return levels is not None and levels.is_known(broker)


def plan_windows(memory: LoadMemory, resource: str, broker: int, windows_min: int) -> int:
    """Newest windows that a plan for this broker rests on: more than `windows_min` where its load is noisy."""
    if not is_known(memory, resource, broker):
        return windows_min
    levels = memory.levels[resource]
    enough = (n for n in range(windows_min, PLAN_WINDOWS_MAX) if levels.mean_noise(broker, n) <= PLAN_NOISE_MAX)
    return next(enough, max(windows_min, PLAN_WINDOWS_MAX))


def remembered_noise(memory: LoadMemory, resource: str, windows: int) -> float | None:
    """The gain in max/mean that a plan on so many windows could promise for noise alone; None if no noise is known."""
    levels = memory.levels.get(resource)
    noise = None if levels is None else levels.typical_mean_noise(windows)
    return None if noise is None else GAIN_SIGMAS * noise
