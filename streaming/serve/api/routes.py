"""Routes of the API."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from streaming.errors import TableUnavailable, UsageProblem
from streaming.serve.access import HOW_TO_TURN_ON, SignIn
from streaming.serve.api.acting import ACTS, Acting
from streaming.serve.api.audit import Actions
from streaming.serve.api.endpoints import CLUSTERS, ENDPOINTS, Endpoint
from streaming.serve.api.events import Events
from streaming.serve.api.openapi import document
from streaming.serve.api.pages import answer
from streaming.serve.api.parameters import read_query
from streaming.serve.api.problems import ApiProblem
from streaming.serve.api.read_sources import ReadSources


def api_routes(
    sources: ReadSources, sign_in: SignIn, actions: Actions, events: Events, of_people: Sequence[BaseRoute]
) -> list[BaseRoute]:
    """What is read by GET, what has changed, what acts by POST, who is signed in, and the document of them all.

    `of_people` are the routes by which people sign in and out.
    """
    reading = [Route(endpoint.path, _reading(endpoint, sources, sign_in), methods=["GET"]) for endpoint in ENDPOINTS]
    return [
        openapi_route(),
        *reading,
        *events.routes(),
        *Acting(sources, sign_in, actions).routes(),
        *of_people,
    ]


def clusters_route(sources: ReadSources, sign_in: SignIn) -> Route:
    """Returns the route of the list of all clusters."""
    return Route(CLUSTERS.path, _reading(CLUSTERS, sources, sign_in), methods=["GET"])


def openapi_route() -> Route:
    """Returns the route of the document."""
    described = _described()

    def openapi(request: Request) -> Response:
        return answer(request, described)

    return Route("/api/openapi.json", openapi)


@cache
def _described() -> dict[str, Any]:
    """The document; that of every application in one process."""
    return document(ENDPOINTS, ACTS)


def _reading(endpoint: Endpoint, sources: ReadSources, sign_in: SignIn) -> Callable[[Request], Response]:
    in_path = [parameter for parameter in endpoint.parameters if parameter.place == "path"]
    in_query = [parameter for parameter in endpoint.parameters if parameter.place == "query"]

    def read(request: Request) -> Response:
        if endpoint.needs_sign_in:
            if not sign_in.is_on:
                raise ApiProblem(403, HOW_TO_TURN_ON)
            sign_in.reader(request, sources.kafka_cluster, now_ms=sources.clock())
        seen = sources.seen_by(sign_in.may_see(request, now_ms=sources.clock())) if endpoint.is_of_all else sources
        given = {parameter.name: parameter.value(request.path_params[parameter.name]) for parameter in in_path}
        given |= read_query(request.query_params, in_query)
        try:
            return answer(request, endpoint.answer(seen, given))
        except UsageProblem as error:
            raise ApiProblem(400, str(error)) from None
        except TableUnavailable as error:
            raise ApiProblem(503, str(error), headers={"Retry-After": "5"}) from None

    return read
