"""The OpenAPI document, made of what routes requests: neither can say what the other does not."""

from collections.abc import Iterable
from typing import Any

from streaming.serve.api.acting import ActEndpoint
from streaming.serve.api.endpoints import Endpoint
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
    "401": "There is no token, or it does not hold: `serve.reading` is signed_in",
    "404": "There is no such thing",
    "429": "Too many wrong tokens",
    "503": "Tables can't be read now",
}
REFUSALS_TO_ACT = {
    "400": "The request is not as it must be",
    "401": "There is no token, or it does not hold",
    "403": "Acting is off, the role may not act, or the request comes from another site",
    "404": "There is no such plan or execution",
    "408": "The body has not come in time",
    "409": "It can't be done as things stand: `state` names why",
    "413": "The body is too large",
    "415": "The body is not application/json",
    "422": "The key was used for another request",
    "429": "Too many wrong tokens",
    "503": "Tables or brokers can't be asked now",
}


BY_TOKEN: list[dict[str, list[str]]] = [{"token": []}]


def document(endpoints: Iterable[Endpoint], acts: Iterable[ActEndpoint]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {endpoint.path: {"get": _operation(endpoint)} for endpoint in endpoints}
    for act in acts:
        paths.setdefault(act.path, {})["post"] = _act(act)
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
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    item = {"type": "object", "properties": dict(endpoint.item)}
    listed = {
        "type": "object",
        "required": ["items", "next_cursor"],
        "properties": {
            "items": {"type": "array", "items": item},
            "next_cursor": {"type": ["string", "null"], "description": "Goes into `cursor`; null on the last page"},
        },
    }
    content = {"application/json": {"schema": listed if endpoint.is_list else item}}
    refusals = REFUSALS | ({"403": "Nobody can sign in"} if endpoint.needs_sign_in else {})
    return {
        **({"security": BY_TOKEN} if endpoint.needs_sign_in else {}),
        "operationId": f"read_{endpoint.answer.__name__}",
        "summary": endpoint.summary,
        "parameters": [parameter.described() for parameter in endpoint.parameters],
        "responses": {
            "200": {"description": "The newest there is", "content": content, "headers": {"ETag": {"schema": {}}}},
            "304": {"description": "Not changed since the ETag of If-None-Match"},
            **{status: refusal(why) for status, why in refusals.items()},
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
    members = {name: {"type": "boolean", "description": why} for name, why in (endpoint.flags or {}).items()}
    body = {"type": "object", "properties": members, "additionalProperties": False}
    outcome = {"state": {"type": "string"}, "detail": {"type": "string"}}
    answer = {"type": "object", "required": list(outcome), "properties": outcome}
    return {
        "operationId": endpoint.action,
        "summary": endpoint.summary,
        "security": BY_TOKEN,
        "parameters": [*([endpoint.parameter.described()] if endpoint.parameter else []), key],
        "requestBody": {"required": False, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "What came of it", "content": {"application/json": {"schema": answer}}},
            **{status: refusal(why) for status, why in REFUSALS_TO_ACT.items()},
        },
    }


def refusal(why: str) -> dict[str, Any]:
    """A response that is a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": why, "content": content}
