"""The OpenAPI document, made of what routes requests: neither can say what the other does not."""

from collections.abc import Iterable
from typing import Any

from streaming.serve.api.endpoints import Endpoint
from streaming.serve.api.problems import MEDIA_TYPE

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
    "404": "There is no such thing",
    "503": "Tables can't be read now",
}


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafka load rebalancer",
            "version": "1",
            "description": "Times are ms since 1970 UTC, rates are per second, unknown figures are null.",
        },
        "paths": {endpoint.path: {"get": _operation(endpoint)} for endpoint in endpoints},
        "components": {"schemas": {"Problem": PROBLEM}},
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
    return {
        "operationId": endpoint.answer.__name__,
        "summary": endpoint.summary,
        "parameters": [parameter.described() for parameter in endpoint.parameters],
        "responses": {
            "200": {"description": "The newest there is", "content": content, "headers": {"ETag": {"schema": {}}}},
            "304": {"description": "Not changed since the ETag of If-None-Match"},
            **{status: refusal(why) for status, why in REFUSALS.items()},
        },
    }


def refusal(why: str) -> dict[str, Any]:
    """A response that is a problem."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {"description": why, "content": content}
