"""The demo from start to end: brokers, topics, traffic, all roles; then what was measured, and a report.

It only starts things and watches: detection, plan and execution are the product's own, in its own processes.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console

from assignor_core.wording import counted
from streaming.cluster.admin import Cluster
from streaming.cluster.clients import admin_client
from streaming.config import load_settings
from streaming.demo.brokers import EmbeddedCluster
from streaming.demo.measure import BrokerProbe, count_records
from streaming.demo.prepare import PERSON, add_person, bounded_log_configs, claimed, create_topics, write_settings
from streaming.demo.report import write_report
from streaming.demo.result import DemoResult, partitions_short, result_lines
from streaming.demo.scenario import PARTITIONS_PER_TOPIC, FoundingScenario
from streaming.demo.story import Story, read_story
from streaming.demo.traffic import TrafficOrder
from streaming.demo.traffic_process import TrafficProcess
from streaming.demo.view import View
from streaming.errors import RebalancerError
from streaming.runtime import clocks
from streaming.runtime.supervisor import Supervisor
from streaming.settings import KafkaSettings, ServeSettings, Settings
from streaming.tables import TableReader

TICK_S = 1.0
DEADLINE_S = 600.0
WARM_UP_MS = 3_000
"""Time at the start of a phase, ms, that the figures leave out while producers and leaders settle."""
AFTER_MS = 20_000
LONGEST_FULL_SPEED_S = 600.0
QUERIES = (
    "SELECT window_start, broker, bytes_in_per_sec FROM broker_load ORDER BY 1, 2",
    "SELECT decided_at, verdict, reason, detail FROM decision ORDER BY 1",
    "SELECT topic, partition, old_replicas, new_replicas, reason FROM movement",
)


@dataclass(frozen=True, slots=True)
class DemoOrder:
    """What to run: `records` of topic A at least (0: as long as the demo takes).

    `keep`: traffic, readers and roles go on after the result. `propose`: the plan waits for a person.
    """

    home: Path
    scenario: FoundingScenario
    records: int = 0
    keep: bool = False
    propose: bool = False


@dataclass(slots=True)
class Demo:
    """One run of the demo."""

    order: DemoOrder
    console: Console
    _began_s: float = field(default_factory=time.monotonic)
    _traffic_ended_ms: int = 0
    _interrupted: bool = False
    _polling: bool = False

    def run(self) -> int:
        """Run to the measured result; 0 when balance was reached and no record lost, else 1. Raises RebalancerError."""
        with claimed(self.order.home):
            return self._run()

    def _run(self) -> int:
        view = View(self.console)
        with self._signals_interrupt(), EmbeddedCluster(self.order.home / "kafka") as cluster:
            view.add_step(self._seconds(), f"three brokers run: {', '.join(cluster.bootstrap_servers)}")
            settings_file = write_settings(
                self.order.home.resolve(), cluster, "propose" if self.order.propose else "apply"
            )
            settings = load_settings(settings_file)
            password = add_person(self.order.home.resolve(), now_ms=clocks.now_ms())
            self._create_topics(settings.kafka, cluster)
            probe = BrokerProbe(cluster.jmx_endpoints)
            probe.start()
            supervisor = Supervisor(["--config", str(settings_file)], log_folder=str(self.order.home / "logs"))
            traffic = self._traffic(cluster)
            try:
                supervisor.start()
                traffic.start()
                signing = f"sign in as {PERSON} with the password {password}"
                view.add_step(self._seconds(), f"page and metrics: {_page(settings.serve)} ({signing})")
                result = self._watch(view, cluster, settings, probe, supervisor, traffic)
                self._report(result, settings.storage.tables)
                if self.order.keep:
                    self._keep(settings.serve, supervisor, traffic)
            finally:
                probe.stop()
                traffic.end()
                supervisor.stop()
        return 0 if result.succeeded else 1

    def _watch(
        self,
        view: View,
        cluster: EmbeddedCluster,
        settings: Settings,
        probe: BrokerProbe,
        supervisor: Supervisor,
        traffic: TrafficProcess,
    ) -> DemoResult:
        """Show what happens until the result is measured; then check what was written. Traffic that is kept goes on."""
        leaders_before = _leaders(settings.kafka)
        view.start()
        self._polling = True
        try:
            story, started_ms = self._until_measured(view, settings, probe, supervisor, traffic)
        finally:
            self._polling = False
            view.stop()
        if not self.order.keep:
            traffic.end()
        report = traffic.report()
        if report is None:
            raise RebalancerError(f"no traffic was sent: see {self.order.home / 'logs' / 'traffic.log'}")
        self.console.print("reading every record back ...", highlight=False)
        scenario = self.order.scenario
        counted = count_records(cluster.bootstrap_servers, scenario.topics, PARTITIONS_PER_TOPIC)
        end_ms = (story.balanced_ms or 0) + WARM_UP_MS
        return DemoResult(
            scenario=scenario,
            story=story,
            traffic=report,
            leaders_before=leaders_before,
            leaders_after=_leaders(settings.kafka),
            rates_before=probe.rates(started_ms + WARM_UP_MS, story.execution_started_ms or clocks.now_ms()),
            rates_after=probe.rates(end_ms, self._traffic_ended_ms) if story.balanced_ms else {},
            series=[point for point in probe.series() if point[0] <= self._traffic_ended_ms],
            records_read_back=sum(counted.values()),
            partitions_short=partitions_short(report.acknowledged, counted),
        )

    def _until_measured(
        self,
        view: View,
        settings: Settings,
        probe: BrokerProbe,
        supervisor: Supervisor,
        traffic: TrafficProcess,
    ) -> tuple[Story, int]:
        longest_s = max(DEADLINE_S, self._send_seconds() + DEADLINE_S / 2)
        deadline_s = time.monotonic() + longest_s
        seen = Story()
        story = seen
        started_ms = clocks.now_ms()
        while time.monotonic() < deadline_s and not self._finished(story, traffic):
            if self.order.propose and story.plan and story.execution_started_ms is None:
                deadline_s = time.monotonic() + longest_s  # a person takes the time it takes
            self._check(supervisor)
            traffic.check()
            report = traffic.report()
            started_ms = report.started_ms if report else started_ms
            story = read_story(TableReader(settings.storage.tables), settings.kafka.cluster_name)
            _show_news(view, self._seconds(), seen, story)
            if self.order.propose:
                self._show_how_to_approve(view, settings.serve, seen, story)
            seen = story
            now_ms = clocks.now_ms()
            view.show(self._seconds(), probe.rates(now_ms - 5_000, now_ms), story, settings.trigger.enter_ratio)
            if self._interrupted:
                raise KeyboardInterrupt
            time.sleep(TICK_S)
        self._traffic_ended_ms = clocks.now_ms()
        return story, started_ms

    def _finished(self, story: Story, traffic: TrafficProcess) -> bool:
        if story.failed:
            return True
        if not story.over or story.balanced_ms is None:
            return False
        report = traffic.report()
        sent = report.acknowledged_total if report else 0
        return clocks.now_ms() > story.balanced_ms + WARM_UP_MS + AFTER_MS and sent >= self.order.records

    def _check(self, supervisor: Supervisor) -> None:
        code = supervisor.poll() or supervisor.exit_code()
        if code:
            ended = [role.role for role in supervisor.roles if supervisor.process_id(role.role) is None]
            logs = " and ".join(str(self.order.home / "logs" / f"{role}.log") for role in ended)
            raise RebalancerError(f"{' and '.join(ended)} keeps failing (exit code {code}): see {logs}")

    def _show_how_to_approve(self, view: View, serve: ServeSettings, seen: Story, story: Story) -> None:
        """One line for each plan that waits: control makes a new one while the skew lasts."""
        if story.plan is None or story.execution_started_ms is not None:
            return
        plan_id = story.plan["plan_id"]
        if seen.plan is None or seen.plan["plan_id"] != plan_id:
            config = self.order.home / "rebalancer.yaml"
            view.add_step(
                self._seconds(),
                f"it waits for you: approve it on {_page(serve)}#plan={plan_id}, or with "
                f"rebalancer apply {plan_id[:12]} --config {config} (Ctrl-C ends all)",
            )

    def _report(self, result: DemoResult, tables: str) -> None:
        for line in result_lines(result):
            self.console.print(line, highlight=False, soft_wrap=True)
        html, png = write_report(result, self.order.home)
        command = f"rebalancer sql --config {self.order.home / 'rebalancer.yaml'}"
        tries = "\n         ".join(f'{command} "{query}"' for query in QUERIES)
        text = f"\nreport   {html}\nplot     {png}\ntables   {tables}\ntry      {tries}"
        self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _keep(self, serve: ServeSettings, supervisor: Supervisor, traffic: TrafficProcess) -> None:
        """Traffic and roles run on until Ctrl-C, and are started again if they end. Raises RebalancerError."""
        config = self.order.home / "rebalancer.yaml"
        self.console.print(
            f"\nkept running until Ctrl-C, with traffic and readers: metrics and page on {_page(serve)}, "
            f"`rebalancer status --config {config}`",
            highlight=False,
            soft_wrap=True,
        )
        self._polling = True
        while not self._interrupted:
            self._check(supervisor)
            traffic.revive()
            time.sleep(TICK_S)

    @contextmanager
    def _signals_interrupt(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM raise KeyboardInterrupt once: every `finally` then ends what it started, undisturbed.

        While the loop polls, it checks the flag itself: a library might swallow an exception that a handler raises.
        """

        def stop(_signal: int, _frame: FrameType | None) -> None:
            is_first, self._interrupted = not self._interrupted, True
            if is_first and not self._polling:
                raise KeyboardInterrupt

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _traffic(self, cluster: EmbeddedCluster) -> TrafficProcess:
        scenario, home = self.order.scenario, self.order.home
        rate = max(scenario.records_per_sec, self.order.records / LONGEST_FULL_SPEED_S)
        order = TrafficOrder(
            ",".join(cluster.bootstrap_servers), *scenario.topics, scenario.group, rate, str(home / "traffic.json")
        )
        return TrafficProcess(order, home / "logs" / "traffic.log")

    def _send_seconds(self) -> float:
        scenario = self.order.scenario
        return self.order.records / max(scenario.records_per_sec, self.order.records / LONGEST_FULL_SPEED_S)

    def _create_topics(self, kafka: KafkaSettings, cluster: EmbeddedCluster) -> None:
        scenario, order = self.order.scenario, self.order
        longest = max(order.records, scenario.records_per_sec * DEADLINE_S)
        broker_ids = tuple(broker.broker_id for broker in cluster.brokers)
        create_topics(kafka, scenario, broker_ids, bounded_log_configs(longest) if order.keep else {})

    def _seconds(self) -> float:
        return time.monotonic() - self._began_s


def _leaders(kafka: KafkaSettings) -> dict[str, dict[int, int]]:
    """Leaders per topic and broker, from the cluster."""
    admin = admin_client(kafka)
    try:
        live = Cluster(admin).describe()
    finally:
        admin.close()
    counts: dict[str, dict[int, int]] = {}
    for (topic, _), partition in live.partitions.items():
        per_broker = counts.setdefault(topic, dict.fromkeys(live.broker_racks, 0))
        per_broker[partition.leader] = per_broker.get(partition.leader, 0) + 1
    return counts


def _show_news(view: View, seconds: float, seen: Story, story: Story) -> None:
    """One line for each milestone that is new."""
    if story.first_window_ms and not seen.first_window_ms:
        view.add_step(seconds, "first window of load closed and evaluated")
    if story.plan and not seen.plan:
        assert story.decision is not None
        view.add_step(seconds, f"skew detected: {story.decision['detail']}")
        view.add_step(
            seconds,
            f"plan {story.plan['plan_id'][:12]}: {counted(story.plan['movement_count'], 'movement', 'movements')}, "
            f"{story.plan['bytes_to_move'] / 1e6:.2f} MB, bytes in max/mean "
            f"{story.plan['bytes_in_max_over_mean_before']:.3f} -> {story.plan['bytes_in_max_over_mean_after']:.3f}",
        )
    if story.execution_started_ms and not seen.execution_started_ms:
        view.add_step(seconds, "the plan is being carried out on the live cluster")
    if story.balanced_ms and not seen.balanced_ms:
        view.add_step(seconds, "every movement has been made, throttles are gone; measuring the result")
    if story.measured_ms and not seen.measured_ms:
        assert story.event is not None
        view.add_step(seconds, f"control has measured it: {story.event.detail}")


def _page(serve: ServeSettings) -> str:
    return f"http://{serve.host}:{serve.port}/"
