"""A plan from a file: read and checked whole, before anything of it is kept.

Knows JSON and the core only. Whether the plan still fits the live cluster is asked when it is begun; here, whether it
is one at all, whether it is for this cluster, and whether carrying it out would leave each partition as many replicas.
"""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from assignor_core.errors import InputError
from assignor_core.model import INT64_MAX, cluster_from_json
from assignor_core.plan import Plan, plan_from_json, plan_to_json, validate
from assignor_core.proposed_plan import ProposedPlan
from streaming.errors import UsageProblem


class _Ratio(BaseModel):
    max_over_mean: FiniteFloat | None = None


class _Observed(BaseModel):
    leaders: list[tuple[str, int, int]]
    partition_counts: dict[str, int]
    brokers_missing: list[int] = []
    kafka_cluster_id: str | None = None
    topic_ids: dict[str, str] = {}


class _Rests(BaseModel):
    """What a plan rests on, in its place in the file."""

    observed: _Observed | None = None


class _Besides(BaseModel):
    """What is kept of a plan besides its movements. What only some writers of plans know may be absent."""

    elapsed_ms: Annotated[float, Field(ge=0, le=INT64_MAX)] = 0.0
    skew_before: dict[str, _Ratio]
    skew_after: dict[str, _Ratio]
    lower_bound: dict[str, FiniteFloat]
    loads_before: dict[str, dict[int, FiniteFloat]] = {}
    loads_after: dict[str, dict[int, FiniteFloat]] = {}
    least_bytes: Annotated[FiniteFloat, Field(ge=0)] | None = None


def read_plan_file(file: str, cluster_name: str) -> ProposedPlan:
    """The contract's "Result of plan" in `file`, for the cluster of that name.

    Raises UsageProblem in one line; PlanTampered where content and id disagree.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        content = _from_json(text)
        if isinstance(content, dict):
            _Rests.model_validate_json(text, strict=True)
        plan = plan_from_json(content)
        besides = _Besides.model_validate_json(text, strict=True)
        plan_to_json(plan)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _misfit(file, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (KeyError, TypeError):
        raise _misfit(file, "lower_bound: names a resource of which skew_after holds no max_over_mean") from None
    except (OSError, ValueError, OverflowError, RecursionError, InputError) as error:
        raise _misfit(file, str(error)) from None
    if plan.cluster_id not in ("", cluster_name):
        raise _misfit(file, f"is for cluster {plan.cluster_id!r}, kafka.cluster_name is {cluster_name!r}")
    problem = _unsound(plan)
    if problem:
        raise _misfit(file, problem)
    return ProposedPlan(plan, elapsed_ms=besides.elapsed_ms)


def _from_json(text: str) -> Any:
    """What the text holds; raises ValueError. Who sends the text for people to a file learns what to ask for."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"is no JSON, which `rebalancer plan --out FILE` writes: {error}") from None


def _unsound(plan: Plan) -> str | None:
    """Why no cluster may be changed so, if so: asked of the smallest cluster that the plan could be for."""
    if plan.bytes_to_move > INT64_MAX:
        return f"bytes_to_move: found {plan.bytes_to_move:g}"
    if not plan.movements:
        return None
    named = {broker for movement in plan.movements for broker in (*movement.old_replicas, *movement.new_replicas)}
    before = {
        (movement.topic, movement.partition): {
            "topic": movement.topic,
            "partition": movement.partition,
            "replicas": list(movement.old_replicas),
            "load": {"bytes_in_per_sec": 0.0, "bytes_out_per_sec": 0.0, "disk_bytes": movement.bytes_to_move},
        }
        for movement in plan.movements
    }
    try:
        cluster = cluster_from_json(
            {
                "cluster_id": plan.cluster_id,
                "brokers": [{"broker_id": broker} for broker in sorted(named)],
                "partitions": list(before.values()),
            }
        )
    except InputError as error:
        return str(error)
    problems = validate(plan, cluster)
    if problems:
        return problems[0]
    return None


def _misfit(file: str, problem: str) -> UsageProblem:
    return UsageProblem(f"plan file {file}: {problem}")
