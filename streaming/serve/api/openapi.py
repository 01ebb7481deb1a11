"""The OpenAPI document, made of what routes requests: neither can say what the other does not."""

from collections.abc import Iterable
from typing import Any

from streaming.serve.access import COOKIE, CSRF_HEADER, SESSION_PATH
from streaming.serve.api.acting import ActEndpoint
from streaming.serve.api.endpoints import Endpoint
from streaming.serve.api.events import MEDIA_TYPE as EVENT_STREAM
from streaming.serve.api.events import PATH as EVENTS_PATH
from streaming.serve.api.parameters import TIME_MAX_MS
from streaming.serve.api.problems import MEDIA_TYPE
from streaming.serve.api.requests import KEY

PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, in a sentence"},
    },
}
REFUSALS = {
    "400": "A parameter is unknown or not allowed",
    "401": "There is no token or session, or it does not hold: `serve.reading` is signed_in",
    "403": "Nobody can sign in, or who is signed in has no role on this cluster",
    "404": "There is no such thing",
    "429": "Too many wrong tokens",
    "503": "Tables can't be read now, or the issuer's keys are not known",
}
REFUSALS_TO_ACT = {
    "400": "The request is not as it must be",
    "401": "There is no token or session, or it does not hold",
    "403": "Acting is off, the role may not act on this cluster, the request is of another site, or the CSRF token is "
    "missing",
    "404": "There is no such plan or execution",
    "408": "The body has not come in time",
    "409": "It can't be done as things stand: `state` names why",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "422": "The key was used for another request",
    "429": "Too many wrong tokens",
    "503": "Tables or brokers can't be asked now",
}
REFUSALS_OF_SESSIONS = {
    "400": "Name or password is missing or none",
    "401": "Name or password is wrong, or a token that is sent does not hold",
    "403": "Nobody can sign in with a password, the request does not come from the page, or the issuer gives no role",
    "408": "The body has not come in time",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "429": "Too many wrong passwords or tokens",
    "503": "The users file can't be read, too many sign in, or the issuer's keys are not known",
}

READS: list[dict[str, list[str]]] = [{"token": []}, {"session": []}]
ACTS_BY: list[dict[str, list[str]]] = [{"token": []}, {"session": [], "csrf": []}]
SCHEMES = {
    "token": {"type": "http", "scheme": "bearer"},
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "As POST /api/v1/session sets it; over TLS its name begins with __Host-",
    },
    "csrf": {"type": "apiKey", "in": "header", "name": CSRF_HEADER, "description": "`csrf_token` of the session"},
}


def document(endpoints: Iterable[Endpoint], acts: Iterable[ActEndpoint]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {endpoint.path: {"get": _operation(endpoint)} for endpoint in endpoints}
    for act in acts:
        paths.setdefault(act.path, {})["post"] = _act(act)
    paths[EVENTS_PATH] = {"get": events_operation()}
    paths[SESSION_PATH] = session_operations()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka load rebalancer",
            "version": "1",
            "description": "Times are ms since 1970 UTC, rates are per second, unknown figures are null.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": PROBLEM},
            "securitySchemes": SCHEMES,
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    item = {"type": "object", "properties": dict(endpoint.item)}
    listed = {
        "type": "object",
        "required": ["items", "next_cursor"],
        "properties": {
            **endpoint.head,
            "items": {"type": "array", "items": item},
            "next_cursor": {"type": ["string", "null"], "description": "Goes into `cursor`; null on the last page"},
        },
    }
    content = {"application/json": {"schema": listed if endpoint.is_list else item}}
    return {
        **({"security": READS} if endpoint.needs_sign_in else {}),
        "operationId": f"read_{endpoint.answer.__name__}",
        "summary": endpoint.summary,
        "parameters": [parameter.described() for parameter in endpoint.parameters],
        "responses": {
            "200": {"description": "The newest there is", "content": content, "headers": {"ETag": {"schema": {}}}},
            "304": {"description": "Not changed since the ETag of If-None-Match"},
            **{status: refusal(why) for status, why in REFUSALS.items()},
        },
    }


def _act(endpoint: ActEndpoint) -> dict[str, Any]:
    key = {
        "name": "Idempotency-Key",
        "in": "header",
        "required": True,
        "description": "Of your own: the same request with the same key acts once, for 24 hours",
        "schema": {"type": "string", "pattern": f"^{KEY.pattern}$"},
    }
    members: dict[str, dict[str, Any]] = {
        name: {"type": "boolean", "description": why} for name, why in (endpoint.flags or {}).items()
    }
    for name, why in (endpoint.times or {}).items():
        members[name] = {"type": "integer", "format": "int64", "minimum": 0, "maximum": TIME_MAX_MS, "description": why}
    body = {"type": "object", "properties": members, "additionalProperties": False}
    outcome = {"state": {"type": "string"}, "detail": {"type": "string"}}
    answer = {"type": "object", "required": list(outcome), "properties": outcome}
    return {
        "operationId": endpoint.action,
        "summary": endpoint.summary,
        "security": ACTS_BY,
        "parameters": [*([endpoint.parameter.described()] if endpoint.parameter else []), key],
        "requestBody": {"required": False, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "What came of it", "content": {"application/json": {"schema": answer}}},
            **{status: refusal(why) for status, why in REFUSALS_TO_ACT.items()},
        },
    }


def events_operation() -> dict[str, Any]:
    """The stream of events."""
    about = "Events `status`, `executions` and `decisions` until the stream ends; the data of each is a JSON object"
    whys = REFUSALS | {"429": "Too many wrong tokens, or streams of one address", "503": "Too many streams"}
    return {
        "operationId": "read_events",
        "summary": "What has changed, as server-sent events; each names what is to be read again.",
        "responses": {
            # No schema: tools do not agree whether it is that of the text or of each event.
            "200": {"description": about, "content": {EVENT_STREAM: {}}},
            **{status: refusal(why) for status, why in whys.items() if status != "404"},
        },
    }


def session_operations() -> dict[str, Any]:
    """What can be done with a session."""
    members = {
        "signed_in": {"type": "boolean"},
        "name": {"type": ["string", "null"]},
        "role": {
            "type": ["string", "null"],
            "description": "The role on this cluster; of several clusters, outside /clusters/NAME, the role on those "
            "that `roles` does not name; null: none",
        },
        "roles": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Cluster: role, outside /clusters/NAME; empty of an answer of one cluster",
        },
        "signed_in_by": {
            "type": ["string", "null"],
            "description": "Token or session and its id, or `oidc` and the subject",
        },
        "csrf_token": {"type": ["string", "null"], "description": f"Goes into {CSRF_HEADER}; null of a token"},
        "ends_in_ms": {"type": ["integer", "null"], "description": "When the session ends unless it is used"},
        "by_password": {"type": "boolean", "description": "Whether people can sign in with a password"},
        "by_issuer": {"type": "boolean", "description": "Whether people can sign in by the issuer, at /oidc/sign-in"},
        "detail": {"type": "string", "description": "Where nobody can sign in: how to turn it on"},
    }
    answer = {"type": "object", "required": list(members), "properties": members}
    done = {"description": "Who is signed in now", "content": {"application/json": {"schema": answer}}}
    login = {name: {"type": "string", "minLength": 1} for name in ("name", "password")}
    body = {"type": "object", "required": list(login), "properties": login, "additionalProperties": False}

    def operation(name: str, summary: str, *statuses: str, **more: Any) -> dict[str, Any]:
        refusals = {status: refusal(REFUSALS_OF_SESSIONS[status]) for status in statuses}
        return {"operationId": name, "summary": summary, **more, "responses": {"200": done, **refusals}}

    return {
        "get": operation("read_session", "Who is signed in; a use of the session.", "401", "403", "429", "503"),
        "post": operation(
            "sign_in",
            "Sign in with name and password; sets the cookie.",
            *REFUSALS_OF_SESSIONS,
            requestBody={"required": True, "content": {"application/json": {"schema": body}}},
        ),
        "delete": operation("sign_out", "End the session of the cookie.", "403", "503", security=[*ACTS_BY[1:], {}]),
    }


def refusal(why: str) -> dict[str, Any]:
    """A response that is a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": why, "content": content}
