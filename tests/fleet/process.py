"""A fleet in a process of its own, so that its CPU is not that of whoever asks it. It ends with its owner.

with FleetProcess(partial(synthetic_fleet, FleetSize(10, 10_000, 1_000))) as fleet:
    client = admin_client(KafkaSettings(bootstrap_servers=fleet.bootstrap_servers))
    fleet.run(Fleet.advance, 10_000)
"""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import psutil

from tests.fleet import jmx
from tests.fleet.fleet import HOST, Fleet
from tests.fleet.wire import BrokerListener

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

START_S = 300.0
ANSWER_S = 300.0
END_S = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What the process of a fleet has used so far."""

    cpu_s: float
    rss_bytes: int


class FleetProcess:
    """Starts a fleet at `with`, and ends it, by its process id, whatever happens. `build` must be picklable."""

    def __init__(self, build: Callable[[], Fleet]) -> None:
        self._build = build
        self.ports: dict[int, int] = {}
        self.jmx_ports: dict[int, int] = {}

    def __enter__(self) -> Self:
        context = get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=_main, args=(self._build, other), daemon=True)
        self._process.start()
        other.close()
        try:
            self.ports, self.jmx_ports = self._answer(START_S)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    @property
    def bootstrap_servers(self) -> list[str]:
        """host:port of every broker."""
        return [f"{HOST}:{port}" for port in self.ports.values()]

    @property
    def jmx_endpoints(self) -> dict[int, str]:
        """broker id: URL of its metrics, as the settings take them."""
        return {broker: f"http://{HOST}:{port}/metrics" for broker, port in self.jmx_ports.items()}

    def run(
        self,
        function: Callable[Concatenate[Fleet, Arguments], Result],
        *arguments: Arguments.args,
        **options: Arguments.kwargs,
    ) -> Result:
        """The result of a module's function that is called with the fleet, between two requests; raises its errors."""
        self._connection.send((function, arguments, options))
        result: Result = self._answer(ANSWER_S)
        return result

    @property
    def process_id(self) -> int:
        """Of the process that serves the fleet."""
        assert self._process.pid is not None, "it has been started"
        return self._process.pid

    def usage(self) -> Usage:
        """CPU and memory of the process."""
        process = psutil.Process(self.process_id)
        times = process.cpu_times()
        return Usage(times.user + times.system, process.memory_info().rss)

    def _answer(self, limit_s: float) -> Any:
        if not self._connection.poll(limit_s):
            raise TimeoutError(f"the fleet (process {self.process_id}) gave no answer in {limit_s:.0f} s")
        result, error = self._connection.recv()
        if error is not None:
            raise error
        return result

    def _end(self) -> None:
        self._connection.close()  # the process ends when its owner has hung up
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def is_running(process_id: int) -> bool:
    """Whether there is such a process."""
    return psutil.pid_exists(process_id)


def freeze_broker(fleet: Fleet, broker_id: int) -> None:
    """Let a broker hang: its connections stay open, it answers nothing. In metadata it stays until time passes."""
    fleet.cluster.freeze_broker(broker_id)


def resume_broker(fleet: Fleet, broker_id: int) -> None:
    """Let a frozen broker go on."""
    fleet.cluster.resume_broker(broker_id)


def kill_broker(fleet: Fleet, broker_id: int) -> None:
    """End a broker: its connections are closed. In metadata it stays until time passes."""
    fleet.cluster.kill_broker(broker_id)


def change_password(fleet: Fleet, password: str) -> None:
    """Let brokers take this password from now on, and hang up on who has logged in before."""
    fleet.password = password
    for broker_id in fleet.contents.brokers:
        fleet.cluster.kill_broker(broker_id)


def restart_brokers(fleet: Fleet) -> None:
    """Start brokers again that were killed."""
    for broker_id in fleet.contents.brokers:
        fleet.cluster.restart_broker(broker_id)


def slow_broker_down(fleet: Fleet, broker_id: int, delay_s: float) -> None:
    """Let a broker answer later from now on; 0 ends it."""
    fleet.faults.delay_s[broker_id] = delay_s


def refuse_requests(fleet: Fleet, share: float) -> None:
    """Let all brokers refuse a share of the requests; 0 ends it."""
    fleet.faults.refused_share = share


def _main(build: Callable[[], Fleet], owner: Connection) -> None:
    asyncio.run(_serve(build, owner))
    # Millions of objects would be freed one by one.
    os._exit(0)


async def _serve(build: Callable[[], Fleet], owner: Connection) -> None:
    try:
        fleet = build()
        listeners = [BrokerListener(fleet, broker_id) for broker_id in sorted(fleet.contents.brokers)]
        servers = {row.broker_id: await row.listen() for row in listeners}
        pages = {row.broker_id: await jmx.listen(fleet, row.broker_id) for row in listeners}
        fleet.ports = _ports(servers)
    except Exception as error:  # noqa: BLE001  # the owner raises it
        owner.send((None, error))
        return
    owner.send(((fleet.ports, _ports(pages)), None))
    ended = asyncio.Event()

    def obey() -> None:
        try:
            function, arguments, options = owner.recv()
        except (EOFError, OSError):
            ended.set()
            return
        owner.send(_outcome(fleet, function, arguments, options))
        for listener in listeners:
            listener.go_on()

    asyncio.get_running_loop().add_reader(owner.fileno(), obey)
    await ended.wait()


def _outcome(fleet: Fleet, function: Callable[..., Any], arguments: Any, options: Any) -> tuple[Any, Any]:
    try:
        return function(fleet, *arguments, **options), None
    except Exception as error:  # noqa: BLE001  # the owner raises it
        return None, error


def _ports(servers: dict[int, asyncio.Server]) -> dict[int, int]:
    return {broker_id: server.sockets[0].getsockname()[1] for broker_id, server in servers.items()}
