"""The table `audit`: who asked for which act, from where, when, and what came of it. It is the memory of keys too."""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from streaming import tables
from streaming.contract import AUDIT
from streaming.serve.api.actions import Outcome
from streaming.serve.api.sign_in import Person

KEY_LIVES_MS = 24 * 3_600_000
"""So long a request that is sent again with its key gets the answer of the first."""
DETAIL_LENGTH_MAX = 2_000


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
    """What an earlier request with the same key was, and its answer."""

    request_hash: str
    status: int
    answer: dict[str, Any]


class Audit:
    """Rows of one cluster below one root."""

    def __init__(self, root: str, kafka_cluster: str) -> None:
        self._root = root
        self._cluster = kafka_cluster

    def answered(self, act: Act, *, now_ms: int) -> Known | None:
        """The answer that this person got for this key; None if there is none yet, or it was a failure of ours.

        Raises TableUnavailable.
        """
        where = (
            tables.of_cluster(self._cluster)
            & tables.at_least("event_time", tables.utc(max(0, now_ms - KEY_LIVES_MS)))
            & tables.equal("idempotency_key", act.idempotency_key)
            & tables.equal("signed_in_by", act.person.signed_in_by)
            & tables.equal("stage", "ended")
        )
        rows = tables.read(self._root, AUDIT.name, where=where)
        answered = (row for row in rows if row["status"] is not None and row["status"] < 500)
        row = tables.newest(answered, "event_time")
        return None if row is None else Known(row["request_hash"], row["status"], json.loads(row["answer_json"]))

    def begin(self, act: Act, *, now_ms: int) -> None:
        """Written before anything is done; raises TableUnavailable, and then nothing must be done."""
        self._append(act, "begun", {}, now_ms)

    def end(self, act: Act, outcome: Outcome, answer: dict[str, Any], *, now_ms: int) -> None:
        """What came of it; raises TableUnavailable."""
        ended = {
            "status": outcome.status,
            "state": outcome.state,
            "detail": outcome.detail[:DETAIL_LENGTH_MAX],
            "answer_json": json.dumps(answer),
        }
        self._append(act, "ended", ended, now_ms)

    def _append(self, act: Act, stage: str, ended: dict[str, Any], now_ms: int) -> None:
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
        transaction_id = f"audit:{act.act_id}:{stage}"
        tables.append(self._root, AUDIT.name, [row], transaction_id=transaction_id, transaction_version=0)
