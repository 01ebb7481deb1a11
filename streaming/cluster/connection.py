"""A connection to a live cluster: the checks before a change, and settings of its brokers and topics.

Turns every error of the client into one of ours.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from assignor_core.identity import cluster_mismatch
from assignor_core.throttles import is_foreign
from streaming.cluster.answers import brokers_alive, translated, unanswered_in
from streaming.errors import AnotherCluster, ClusterRequestFailed, ClusterUnreachable

ROLE = "control"


class Connection:
    """A live cluster behind an admin client that the caller built and closes.

    `may_act` is asked right before each change and raises where this process must not make it (see control.lease).
    With `kafka_cluster_id`, each look and each change raises AnotherCluster where the brokers name another id.
    """

    def __init__(
        self,
        admin: KafkaAdminClient,
        may_act: Callable[[], None] = lambda: None,
        *,
        kafka_cluster_id: str | None = None,
    ) -> None:
        self._admin = admin
        self._may_act = may_act
        self._kafka_cluster_id = kafka_cluster_id

    def _before_change(self) -> None:
        """The lease is asked last: the less time lies between its answer and the request, the better."""
        if self._kafka_cluster_id is not None:
            with translated("describe the cluster", role=ROLE):
                self._checked_cluster()
        self._may_act()

    def _checked_cluster(self) -> dict[str, Any]:
        """The cluster's description; raises AnotherCluster, KafkaError."""
        cluster: dict[str, Any] = self._admin.describe_cluster()
        other = cluster_mismatch(self._kafka_cluster_id, cluster["cluster_id"])
        if other is not None:
            raise AnotherCluster(other)
        return cluster

    def _alive(self) -> list[int]:
        with translated("describe the cluster", role=ROLE):
            return list(brokers_alive(self._admin))

    def _modified(
        self, kind: ConfigResourceType, names: list[str], settings: tuple[str, ...]
    ) -> dict[str, dict[str, str]]:
        """Returns values of `settings` that were set on these resources themselves, not inherited from a default."""
        if not names:
            return {}
        with translated("read throttle settings", role=ROLE):
            described = self._admin.describe_configs([ConfigResource(kind, name, settings) for name in names])
        resources = described.get(kind.name.lower(), {})
        return {name: {key: row["value"] for key, row in values.items()} for name, values in resources.items()}

    def _rates(self, brokers: Collection[int] | None, settings: tuple[str, ...]) -> dict[int, dict[str, int]]:
        """Rates that are set dynamically, bytes/s, by broker and setting, of these brokers that are alive."""
        return self._rates_of([row for row in self._alive() if brokers is None or row in brokers], settings)

    def _rates_of(self, alive: Collection[int], settings: tuple[str, ...]) -> dict[int, dict[str, int]]:
        modified = self._modified(ConfigResourceType.BROKER, list(map(str, alive)), settings)
        return {
            int(broker): rates
            for broker, values in modified.items()
            if (rates := {key: int(values[key]) for key in settings if values.get(key)})
        }

    def _set_rates(self, rates: Mapping[int, int], settings: tuple[str, ...]) -> None:
        """Set rates of brokers that are alive, but for those of others, which a read just before shows: Kafka knows no
        condition for a change.
        """
        values = {broker: ("SET", str(rate)) for broker, rate in rates.items()}
        self._change_rates(values, settings, keeps_others=True)

    def _clear_rates(self, brokers: Collection[int], settings: tuple[str, ...], *, untagged: bool) -> list[int]:
        """Remove rates, those of others only if `untagged`; returns who is down. A broker may not show yet
        what it was asked for just before: a rate that it does not show is removed, too.
        """
        return self._change_rates(dict.fromkeys(brokers, ("DELETE", None)), settings, keeps_others=not untagged)

    def _change_rates(
        self,
        values: Mapping[int, tuple[str, str | None]],
        settings: tuple[str, ...],
        *,
        keeps_others: bool,
    ) -> list[int]:
        """Change rates of brokers that are alive, but for those of others where these are kept; returns who is down."""
        alive = values.keys() & set(self._alive())
        shown = self._rates_of(sorted(alive), settings) if keeps_others else {}
        changes = {
            str(broker): {row: values[broker] for row in settings if not is_foreign(shown.get(broker, {}).get(row))}
            for broker in sorted(alive)
        }
        self._alter(ConfigResourceType.BROKER, {broker: row for broker, row in changes.items() if row})
        return sorted(values.keys() - alive)

    def _alter(
        self,
        kind: ConfigResourceType,
        changes: Mapping[str, Mapping[str, tuple[str, str | None]]],
        *,
        what: str = "throttle",
    ) -> None:
        """Change settings of resources; `what` they are, for messages."""
        if not changes:
            return
        resources = [ConfigResource(kind, name, dict(values)) for name, values in sorted(changes.items())]
        self._before_change()
        with translated(f"change {what} settings", role=ROLE):
            answers = self._admin.alter_configs(resources, raise_on_unknown=False, incremental=True)
        failed = {name: answer for rows in answers.values() for name, answer in rows.items() if answer != "OK"}
        refused = {name: answer for name, answer in failed.items() if not unanswered_in(answer)}
        if refused:
            name, answer = min(refused.items())
            raise ClusterRequestFailed(f"{what} of {kind.name.lower()} {name} can't be changed: {answer}")
        if failed:
            raise ClusterUnreachable(f"no answer when asked to change the {what} of {kind.name.lower()} {min(failed)}")
