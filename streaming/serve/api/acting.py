"""Requests that act: who asks is known and may, the request is their own, it acts once, and leaves rows in `audit`."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assignor_core.errors import CoreError
from streaming.errors import RebalancerError, RefusedForSafety, UsageProblem
from streaming.serve.access import HOW_TO_TURN_ON, Person, SignIn
from streaming.serve.api.audit import Act, Actions, ActOutcome, Audit, Known
from streaming.serve.api.pages import as_json
from streaming.serve.api.parameters import BROKER_ID, EXECUTION_ID, OF_NAMES, TIME_MAX_MS, Parameter
from streaming.serve.api.problems import MEDIA_TYPE, ApiProblem, problem_body
from streaming.serve.api.read_sources import ReadSources
from streaming.serve.api.requests import TRY_AGAIN, Turns, check_origin, idempotency_key, read_body

log = structlog.get_logger()

Given = Mapping[str, Any]
"""The parameter of the path, and members of the body."""


@dataclass(frozen=True, slots=True)
class ActEndpoint:
    """A path that acts by POST; its body may have `flags`, which are true or false, and `times`, ms since 1970."""

    path: str
    action: str
    summary: str
    act: Callable[[Actions, Given, str, int], ActOutcome]
    parameter: Parameter | None = None
    flags: Mapping[str, str] | None = None
    times: Mapping[str, str] | None = None
    makes_plan: bool = False
    """Whether the act makes a plan, which may take minutes on a large cluster."""


PLAN_ID = Parameter("plan_id", "The whole id of a plan, 64 characters", OF_NAMES, least=64, most=64, place="path")
BEGINS = {"begins_ms": "The execution begins no earlier; ms since 1970, at most 14 days ahead"}


def _of_broker(
    action: str, summary: str, act: Callable[[Actions], Callable[..., ActOutcome]], carry_out: str
) -> ActEndpoint:
    """An act on one broker that makes a plan; `carry_out` says what that flag of its body does."""
    return ActEndpoint(
        f"/api/v1/brokers/{{broker}}/{action}",
        action,
        summary,
        lambda actions, given, by, now_ms: act(actions)(
            given["broker"], by, carry_out=given.get("carry_out", False), now_ms=now_ms
        ),
        BROKER_ID,
        {"carry_out": carry_out},
        makes_plan=True,
    )


ACTS = (
    ActEndpoint(
        "/api/v1/plans",
        "plan",
        "Make the plan that control would make now, and keep it.",
        lambda actions, _given, _by, now_ms: actions.make_plan(now_ms=now_ms),
        makes_plan=True,
    ),
    ActEndpoint(
        "/api/v1/plans/{plan_id}/approve",
        "approve",
        "Ask for exactly this plan to be carried out.",
        lambda actions, given, by, now_ms: actions.approve(
            given["plan_id"], by, now_ms=now_ms, begins_ms=given.get("begins_ms")
        ),
        PLAN_ID,
        times=BEGINS,
    ),
    ActEndpoint(
        "/api/v1/executions/{execution_id}/abort",
        "abort",
        "Ask for this execution to stop; finished moves stay.",
        lambda actions, given, by, now_ms: actions.abort(given["execution_id"], by, now_ms=now_ms),
        EXECUTION_ID,
    ),
    _of_broker(
        "drain",
        "Make a plan that empties this broker.",
        lambda actions: actions.drain,
        "Note the drain and approve the plan at once",
    ),
    _of_broker(
        "add",
        "Make a plan that gives this broker its share.",
        lambda actions: actions.add,
        "End a drain of the broker and approve the plan at once",
    ),
    _of_broker(
        "demote",
        "Make a plan that takes all leadership off this broker.",
        lambda actions: actions.demote,
        "Note the demotion and approve the plan at once",
    ),
    _of_broker(
        "undemote",
        "Make a plan that lets this broker lead again what it led.",
        lambda actions: actions.undemote,
        "End the demotion and approve the plan at once",
    ),
    ActEndpoint(
        "/api/v1/brokers/{broker}/undrain",
        "undrain",
        "End the drain of this broker; moves nothing.",
        lambda actions, given, by, now_ms: actions.undrain(given["broker"], by, now_ms=now_ms),
        BROKER_ID,
    ),
)


class Acting:
    """Answers requests that act; in this process one that makes a plan at a time, and one other."""

    def __init__(self, sources: ReadSources, sign_in: SignIn, actions: Actions) -> None:
        self._sources = sources
        self._sign_in = sign_in
        self._actions = actions
        self._audit = Audit(sources.settings.storage.tables, sources.kafka_cluster)
        self._planning, self._noting = Turns(), Turns()
        """An abort must not wait for a plan that is being made."""

    def routes(self) -> list[Route]:
        """A route for each act."""
        return [Route(endpoint.path, self._endpoint(endpoint), methods=["POST"]) for endpoint in ACTS]

    def _endpoint(self, endpoint: ActEndpoint) -> Callable[[Request], Any]:
        turns = self._planning if endpoint.makes_plan else self._noting

        async def answer(request: Request) -> Response:
            if not self._sign_in.is_on:
                raise ApiProblem(403, HOW_TO_TURN_ON)
            check_origin(request)
            person = self._actor(request)
            key = idempotency_key(request)
            content, body = await read_body(request)
            given = _given(endpoint, request, body)
            target = str(given[endpoint.parameter.name]) if endpoint.parameter else None
            digest = hashlib.sha256(request.url.path.encode() + b"\0" + content).hexdigest()
            act = Act(endpoint.action, target, person, key, digest)
            with turns.place():
                return await run_in_threadpool(self._act_in_turn, turns, endpoint, given, act, request)

        return answer

    def _actor(self, request: Request) -> Person:
        return self._sign_in.actor(request, self._sources.kafka_cluster, now_ms=self._sources.clock())

    def _act_in_turn(self, turns: Turns, endpoint: ActEndpoint, given: Given, act: Act, request: Request) -> Response:
        with turns.turn():
            # Again: while the body came, or the act before was done, the token may have been revoked.
            act = replace(act, person=self._actor(request))
            try:
                return self._act_once(endpoint, given, act)
            except RebalancerError as error:  # the table of the audit
                raise ApiProblem(503, str(error), headers=TRY_AGAIN) from None

    def _act_once(self, endpoint: ActEndpoint, given: Given, act: Act) -> Response:
        clock = self._sources.clock
        known = self._audit.begin(act, now_ms=clock())
        if known is not None:
            return _known_answer(known, act)
        try:
            outcome = self._outcome(endpoint, given, act.person)
            answer = _answer(outcome)
            log.info("act", action=act.action, target=act.target, actor=act.person.name, state=outcome.state)
            self._audit.end(act, outcome, answer, now_ms=clock())
        except BaseException:
            self._audit.give_up(act)
            raise
        return _response(outcome.status, answer, {})

    def _outcome(self, endpoint: ActEndpoint, given: Given, person: Person) -> ActOutcome:
        by = f"{person.name} ({person.signed_in_by})"
        try:
            return endpoint.act(self._actions, given, by, self._sources.clock())
        except UsageProblem as error:
            return ActOutcome("declined", str(error), 400)
        except (CoreError, RefusedForSafety) as error:
            return ActOutcome("declined", str(error), 409)
        except RebalancerError as error:
            return ActOutcome("failed", str(error), 503)


def _given(endpoint: ActEndpoint, request: Request, body: dict[str, Any]) -> dict[str, Any]:
    if request.query_params:
        raise ApiProblem(400, "a request that acts takes no query parameters: put them into its body")
    flags, times = endpoint.flags or {}, endpoint.times or {}
    for name, value in body.items():
        if name not in flags and name not in times:
            allowed = ", ".join((*flags, *times)) or "none"
            raise ApiProblem(400, f"{name[:100]!r} is not a member of this request's body; allowed are {allowed}")
        if name in flags and not isinstance(value, bool):
            raise ApiProblem(400, f"{name}: must be true or false")
        if name in times and not _is_time(value):
            raise ApiProblem(400, f"{name}: must be a whole number of 0 to {TIME_MAX_MS}, ms since 1970")
    parameter = endpoint.parameter
    in_path = {parameter.name: parameter.value(request.path_params[parameter.name])} if parameter else {}
    return {**body, **in_path}


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TIME_MAX_MS


def _known_answer(known: Known, act: Act) -> Response:
    if known.request_hash != act.request_hash:
        raise ApiProblem(422, "Idempotency-Key: another request has used this key: choose a new one")
    if known.status is None or known.answer is None:
        detail = (
            "a request with this Idempotency-Key has begun and has not ended: read /api/v1/audit, then send the "
            "request again"
        )
        raise ApiProblem(409, detail, headers=TRY_AGAIN, state="in_progress")
    return _response(known.status, known.answer, {"Idempotency-Replayed": "true"})


def _answer(outcome: ActOutcome) -> dict[str, Any]:
    fields = {"state": outcome.state, **outcome.fields}
    if outcome.status < 400:
        return {"detail": outcome.detail, **fields}
    return problem_body(outcome.status, outcome.detail, fields)


def _response(status: int, answer: dict[str, Any], headers: dict[str, str]) -> Response:
    media_type = "application/json" if status < 400 else MEDIA_TYPE
    return Response(as_json(answer), status, {**headers, "Cache-Control": "no-store"}, media_type)
