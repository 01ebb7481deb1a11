"""Acts: what the API asks of control's journal and the cluster, and the table `audit`, the memory of keys too.

serve knows neither journal nor cluster: the command hands it both. `audit` has who asked for which act, from where,
when, and what came of it. The row before an act is what claims its key: of all serves on the same tables one writes it,
and that one acts.
"""

import hashlib
import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from assignor_core.restart import RestartCheck
from streaming import tables
from streaming.contract import AUDIT
from streaming.serve.access import Person
from streaming.views.json_values import stored_object

KEY_LIVES_MS = 24 * 3_600_000
"""How long a request that is sent again with its key gets the answer of the first request, ms."""
BEGUN_LIVES_MS = 600_000
"""How long an act that has not ended keeps its key, ms; after that its serve counts as gone. A plan may
take minutes.
"""
GIVEN_UP_MAX = 1_000
DETAIL_LENGTH_MAX = 2_000


@dataclass(frozen=True, slots=True)
class ActOutcome:
    """What came of an act: `state` is one word, `detail` a sentence; `status` is that of HTTP."""

    state: str
    detail: str
    status: int = 200
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else the answer names: `plan_id`, `execution_id`, ..."""


class Actions(Protocol):
    """Acts of one cluster. Each may raise RebalancerError and CoreError; `by` is who asked, for the journal."""

    def make_plan(self, *, now_ms: int) -> ActOutcome:
        """Make and keep the plan that control would make now."""
        ...

    def approve(self, plan_id: str, by: str, *, now_ms: int, begins_ms: int | None = None) -> ActOutcome:
        """Ask for exactly this plan to be carried out, from `begins_ms` on; None stands for now."""
        ...

    def abort(self, execution_id: str, by: str, *, now_ms: int) -> ActOutcome:
        """Ask for this execution to stop."""
        ...

    def drain(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """Make and keep a plan that empties the broker; `carry_out` notes the drain and approves the plan too."""
        ...

    def add(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """Make and keep a plan that gives the broker its share; `carry_out` ends a drain and approves the plan too."""
        ...

    def demote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """Make and keep a plan that takes all leadership off the broker; `carry_out` notes that and approves it too."""
        ...

    def undemote(self, broker: int, by: str, *, carry_out: bool, now_ms: int) -> ActOutcome:
        """Make and keep a plan that brings its leadership back; `carry_out` ends the demotion and approves it too."""
        ...

    def undrain(self, broker: int, by: str, *, now_ms: int) -> ActOutcome:
        """End the drain of the broker; moves nothing."""
        ...

    def restart_check(self, broker: int) -> RestartCheck:
        """What a restart of the broker would do, by a snapshot of the cluster; changes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Act:
    """One act that is asked for."""

    action: str
    target: str | None
    person: Person
    idempotency_key: str
    request_hash: str
    act_id: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True, slots=True)
class Known:
    """What an earlier request with the same key was, and its answer; both null while it has not ended."""

    request_hash: str
    status: int | None = None
    answer: dict[str, Any] | None = None


class Audit:
    """Rows of one cluster below one root. For many threads."""

    def __init__(self, root: str, kafka_cluster: str) -> None:
        self._root = root
        self._cluster = kafka_cluster
        self._lock = threading.Lock()
        self._given_up: dict[str, None] = {}

    def begin(self, act: Act, *, now_ms: int) -> Known | None:
        """Note that the act begins: it must be done. If its key was used by this person: what is known, and no note.

        A failure of ours is no use of a key. Raises TableUnavailable, and then nothing must be done.
        """
        reader = tables.TableReader(self._root)
        known = self._known(self._of_key(reader, act), now_ms)
        if known is not None:
            return known
        # All who see the same version draw the same transaction, and the row of one of them alone is written. Rows
        # expire, so that they do not count the tries.
        transaction_id = f"audit:{self._cluster}:{_digest(act.person.signed_in_by, act.idempotency_key)}"
        written = reader.transaction_version(AUDIT.name, transaction_id)
        try:
            if self._append(act, "begun", {}, now_ms, transaction_id, 0 if written is None else written + 1):
                return None
        except BaseException:
            self.give_up(act)  # it may have been written, and nothing will be done
            raise
        return self._known(self._of_key(tables.TableReader(self._root), act), now_ms) or Known(act.request_hash)

    def give_up(self, act: Act) -> None:
        """Notes that this act of ours is not under way, though no row may show its end."""
        with self._lock:
            self._given_up[act.act_id] = None
            while len(self._given_up) > GIVEN_UP_MAX:
                del self._given_up[next(iter(self._given_up))]

    def _of_key(self, reader: tables.TableReader, act: Act) -> list[dict[str, Any]]:
        """Rows of all requests of this person with this key."""
        where = (
            tables.of_cluster(self._cluster)
            & tables.equal("idempotency_key", act.idempotency_key)
            & tables.equal("signed_in_by", act.person.signed_in_by)
        )
        columns = ("act_id", "stage", "event_time", "request_hash", "status", "state", "detail", "answer_json")
        return reader.rows(AUDIT.name, columns=columns, where=where)

    def _known(self, rows: Sequence[tables.Row], now_ms: int) -> Known | None:
        lately = [row for row in rows if tables.to_ms(row["event_time"]) >= now_ms - KEY_LIVES_MS]
        ends = {row["act_id"]: row for row in lately if row["stage"] == "ended"}
        answered = (row for row in ends.values() if row["status"] is not None and row["status"] < 500)
        row = tables.newest(answered, "event_time")
        if row is not None:
            return Known(
                row["request_hash"],
                row["status"],
                stored_object(row["answer_json"]) or {"state": row["state"], "detail": row["detail"]},
            )
        with self._lock:
            gone = {*ends, *self._given_up}
        for row in lately:
            is_recent = tables.to_ms(row["event_time"]) > now_ms - BEGUN_LIVES_MS
            if row["stage"] == "begun" and is_recent and row["act_id"] not in gone:
                return Known(row["request_hash"])
        return None

    def end(self, act: Act, outcome: ActOutcome, answer: dict[str, Any], *, now_ms: int) -> None:
        """What came of it; raises TableUnavailable."""
        ended = {
            "status": outcome.status,
            "state": outcome.state,
            "detail": outcome.detail[:DETAIL_LENGTH_MAX],
            "answer_json": json.dumps(answer),
        }
        self._append(act, "ended", ended, now_ms, f"audit:{act.act_id}:ended", 0)

    def _append(
        self, act: Act, stage: str, ended: dict[str, Any], now_ms: int, transaction_id: str, version: int
    ) -> bool:
        row = {
            "act_id": act.act_id,
            "stage": stage,
            "kafka_cluster": self._cluster,
            "event_time": tables.utc(now_ms),
            "action": act.action,
            "target": act.target,
            "actor": act.person.name,
            "signed_in_by": act.person.signed_in_by,
            "role": act.person.role.value,
            "remote_address": act.person.remote_address,
            "idempotency_key": act.idempotency_key,
            "request_hash": act.request_hash,
            "status": None,
            "state": None,
            "detail": None,
            "answer_json": None,
            **ended,
        }
        return tables.append(self._root, AUDIT.name, [row], transaction_id=transaction_id, transaction_version=version)


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
