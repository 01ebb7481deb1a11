"""What tests of several folders share: brokers, started once for all of them and ended whatever happens."""

import os
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from streaming.settings import Settings

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

    from streaming.demo.brokers import EmbeddedCluster

# A failed assert in a helper of tests shows its values, too.
pytest.register_assert_rewrite(
    *{f"tests.{file.stem}" for file in Path(__file__).parent.iterdir()}.difference(sys.modules)
)

pytest_plugins = ["tests.lanes"]

# A shell ignores some signals for what it starts in the background, and every process that a test starts would, too.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The same examples in every run, so that a failure can be repeated. No limit of time, as machines are shared: on a new
# clone the first text that a test draws takes seconds, for the table of all characters is made then.
# `make test ARGS=--hypothesis-profile=searching` looks for others.
REPEATABLE = hypothesis.settings(
    derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("repeatable", REPEATABLE)
hypothesis.settings.register_profile("searching", REPEATABLE, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("repeatable")
# Hypothesis also draws constants of our modules, of those that are imported by then: that depends on which tests ran
# before in the same process, and no setting leaves them out.
providers._get_local_constants = lambda: providers._local_constants

USUAL, FEWER = 2, 4
EXAMPLES_MIN = 5
SETTINGS_OF_A_TEST = "_hypothesis_internal_use_settings"
"""Hypothesis has no public way to change the settings of a test that names its own."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many of their examples property tests try, half if no option says otherwise; and whether stories run."""
    parser.addoption("--few-examples", action="store_true", help="a fourth: `make test-fast`")
    parser.addoption("--all-examples", action="store_true", help="all: `make test ARGS=--all-examples`")
    parser.addoption("--stories", action="store_true", help="stories of many minutes, too: `make test ARGS=--stories`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Unless they are asked for, stories are left out, and each property test tries fewer examples."""
    if not config.getoption("stories"):
        named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
        left_out = {item for item in items if item.get_closest_marker("story") and item.path not in named}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    if config.getoption("all_examples"):
        return
    divisor = FEWER if config.getoption("few_examples") else USUAL
    functions = {item.obj for item in items if isinstance(item, pytest.Function)}
    for function in functions:
        own: hypothesis.settings | None = getattr(function, SETTINGS_OF_A_TEST, None)
        if own is not None:
            few = hypothesis.settings(own, max_examples=_fewer(own.max_examples, divisor))
            setattr(function, SETTINGS_OF_A_TEST, few)


def _fewer(examples: int, divisor: int) -> int:
    return min(examples, max(EXAMPLES_MIN, examples // divisor))


# Spark of the tests and of the processes that they start, with the JVM's quick compiler alone: what the other one would
# gain in a minute or two costs as much CPU time as the tests themselves. Its room for code would be 48 MB then: the
# session that tests share fills that, and a tenth of its CPU time would go into making room. And with the
# serial collector in place of G1: a start of Spark with one batch takes 7 to 21 % less CPU time.
FOR_SHORT_LIVES = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {FOR_SHORT_LIVES}".strip()


@pytest.fixture(autouse=True)
def _handlers_come_back() -> Iterator[None]:
    """Roles that run in a test take signals for themselves: Ctrl-C would no longer end the test run."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture
def tables_in_memory() -> Iterator[str]:
    """A root of the test's own, as a commit to Delta takes longer than what most tests test.

    `tests/tables/test_stores.py` holds such tables to what Delta does.
    """
    from tests.tables_in_memory import forget, in_memory

    root = in_memory()
    yield root
    forget(root)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedCluster"]:
    """Three brokers for all tests that use topics of their own. Followers serve consumers that name their rack."""
    from streaming.demo.brokers import EmbeddedCluster  # the pure tests must not pay for a Kafka client

    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with EmbeddedCluster(tmp_path_factory.mktemp("kafka"), broker_settings=selector) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def one_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedCluster"]:
    """One broker for all tests of the pipeline: two more would use a tenth of a core while Spark works."""
    from streaming.demo.brokers import EmbeddedCluster

    with EmbeddedCluster(tmp_path_factory.mktemp("one"), broker_count=1) as cluster:
        yield cluster


@pytest.fixture
def settings(kafka_cluster: "EmbeddedCluster", tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings of a user of those brokers, with tables in a folder and input topics of the test's own."""
    folder, mark = tmp_path_factory.mktemp("home"), uuid.uuid4().hex[:8]
    return Settings.model_validate(
        {
            "kafka": {"cluster_name": "test", "bootstrap_servers": kafka_cluster.bootstrap_servers},
            "topics": {"byte_rate": f"byte-rate-{mark}", "consumer_lag": f"consumer-lag-{mark}"},
            "storage": {"tables": str(folder / "tables"), "checkpoints": str(folder / "checkpoints")},
            "collect": {"jmx_endpoints": kafka_cluster.jmx_endpoints},
        }
    )


@pytest.fixture
def admin(settings: Settings) -> Iterator["KafkaAdminClient"]:
    """An admin client of those brokers."""
    from streaming.cluster.clients import admin_client

    client = admin_client(settings.kafka)
    yield client
    client.close()
