"""What a demo run has shown, and whether that is a success. Every figure comes from what ran."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assignor_core.wording import counted
from streaming.demo.measure import max_over_mean, ratio_text
from streaming.demo.scenario import FoundingScenario
from streaming.demo.story import Story
from streaming.demo.traffic import TrafficReport

BALANCED_MAX = 1.05
SKEWED_MIN = 1.40

LeadersByTopic = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Rates are bytes/s by broker, measured over JMX, None if unknown; leaders are counts by topic and broker."""

    scenario: FoundingScenario
    story: Story
    traffic: TrafficReport
    leaders_before: LeadersByTopic
    leaders_after: LeadersByTopic
    rates_before: Mapping[int, float | None]
    rates_after: Mapping[int, float | None]
    series: Sequence[tuple[int, Mapping[int, float | None]]]
    records_read_back: int
    partitions_short: tuple[str, ...]

    @property
    def ratio_before(self) -> float | None:
        """max/mean of bytes in before the plan; None if unknown."""
        return max_over_mean(self.rates_before)

    @property
    def ratio_after(self) -> float | None:
        """max/mean of bytes in after the plan; None if unknown."""
        return max_over_mean(self.rates_after)

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why this run is no success; empty if it is one."""
        problems = []
        if self.story.failed:
            problems.append(f"the plan failed: {self.story.failed}")
        elif self.story.balanced_ms is None:
            problems.append("balance was not reached in time")
        if self.ratio_before is None or self.ratio_before < SKEWED_MIN:
            problems.append(f"max/mean before was {ratio_text(self.ratio_before)}, expected at least {SKEWED_MIN}")
        if self.ratio_after is None or self.ratio_after > BALANCED_MAX:
            problems.append(f"max/mean after was {ratio_text(self.ratio_after)}, expected at most {BALANCED_MAX}")
        if self.partitions_short:
            problems.append(f"records are missing in {', '.join(self.partitions_short[:3])}")
        if self.traffic.failed:
            problems.append(f"{counted(self.traffic.failed, 'record was', 'records were')} never acknowledged")
        return tuple(problems)

    @property
    def succeeded(self) -> bool:
        """Whether balance was reached and no acknowledged record is missing."""
        return not self.problems

    def seconds_to(self, moment_ms: int | None) -> float | None:
        """Seconds from the first record to `moment_ms`."""
        return None if moment_ms is None else (moment_ms - self.traffic.started_ms) / 1000


def partitions_short(acknowledged: Mapping[str, int], counted: Mapping[str, int]) -> tuple[str, ...]:
    """Partitions in which fewer records can be read than were acknowledged.

    >>> partitions_short({"t/0": 3, "t/1": 2}, {"t/0": 3, "t/1": 1})
    ('t/1',)
    """
    return tuple(sorted(name for name, count in acknowledged.items() if counted.get(name, 0) < count))


def result_lines(result: DemoResult) -> list[str]:
    """The result as text: before and after per broker, what it cost, how long it took, what was proven."""
    scenario, story = result.scenario, result.story
    lines = [
        "",
        f"{'':<8}{'before':>14}{'':>12}   ->{'after':>14}",
        f"{'broker':<8}{'bytes in/s':>14}{'A':>6}{'B':>6}   ->{'bytes in/s':>14}{'A':>6}{'B':>6}",
    ]
    for broker in sorted(result.rates_before):
        before = [result.leaders_before.get(topic, {}).get(broker, 0) for topic in scenario.topics]
        after = [result.leaders_after.get(topic, {}).get(broker, 0) for topic in scenario.topics]
        lines.append(
            f"{broker:<8}{_figure(result.rates_before[broker]):>14}{before[0]:>6}{before[1]:>6}   ->"
            f"{_figure(result.rates_after.get(broker)):>14}{after[0]:>6}{after[1]:>6}"
        )
    lines.append(
        f"max/mean{ratio_text(result.ratio_before):>14}{'':>12}   ->{ratio_text(result.ratio_after):>14}"
        "   (JMX, on the brokers)"
    )
    if story.plan is not None:
        moved = counted(story.plan["movement_count"], "partition", "partitions")
        lines += ["", f"moved    {moved}, {story.plan['bytes_to_move']:,} bytes planned"]
    moments = (
        ("detected", story.detected_ms),
        ("planned", story.planned_ms),
        ("balanced", story.balanced_ms),
        ("measured", story.measured_ms),
    )
    times = [f"{name} after {seconds:.1f} s" for name, moment in moments if (seconds := result.seconds_to(moment))]
    lines.append(f"times    from the first record: {', '.join(times)}")
    lines.append(
        f"records  {result.traffic.acknowledged_total:,} acknowledged, {result.records_read_back:,} read back, "
        f"{counted(len(result.partitions_short), 'partition', 'partitions')} short, {result.traffic.failed} failed"
    )
    verdict = "balanced, nothing lost" if result.succeeded else "; ".join(result.problems)
    lines.append(f"verdict  {verdict}")
    return lines


def _figure(rate: float | None) -> str:
    return "unknown" if rate is None else f"{rate:,.0f}"
