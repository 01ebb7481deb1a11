"""The HTTP side of a serve for several clusters. Knows no table.

/                    page for people: all clusters, the worst first
/metrics             the series of all clusters
/api/v1/clusters     what the page shows, as JSON
                     (if `serve.reading` is `signed_in`, both have only clusters on which the reader has a role)
/healthz, /readyz    of the process; the second one names the clusters that can't be read
/clusters/NAME/...   page, metrics and API of one cluster, as a serve for this cluster alone has them at its root
"""

import re
from collections.abc import Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.serve.api.problems import answer_problem
from streaming.serve.api.read_sources import ReadSources
from streaming.serve.api.routes import clusters_route, openapi_route
from streaming.serve.metrics import ExpositionOfAll
from streaming.serve.snapshot import Snapshot
from streaming.serve.web import PAGE_OF_ALL, Door, form_of, healthy, metrics_answer, page_routes, problems_of
from streaming.settings import Settings

BELOW = re.compile(r"/clusters/([^/]+)(/.*)?", re.DOTALL)


class ClusterRouter:
    """ASGI application: hands a request below /clusters/NAME to the application of that cluster, others to `shared`."""

    def __init__(self, shared: ASGIApp | None = None, clusters: Mapping[str, Starlette] | None = None) -> None:
        self._shared = shared or Starlette()
        self.clusters = clusters or {}

    def replace(self, shared: ASGIApp, clusters: Mapping[str, Starlette]) -> None:
        """From the next request on, these applications answer. May be called in any thread."""
        self._shared, self.clusters = shared, clusters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request. An application sees its paths as at the root, as its rules on who may read go by them."""
        shared, clusters = self._shared, self.clusters
        below = BELOW.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if below is None or below[1] not in clusters:
            await shared(scope, receive, send)
        elif below[2] is None:
            await RedirectResponse(f"{below[1]}/")(scope, receive, send)
        else:
            inner = {**scope, "path": below[2], "raw_path": below[2].encode("utf-8", "surrogateescape")}
            await clusters[below[1]](inner, receive, send)


def build_shared_app(
    clusters: Sequence[tuple[Callable[[], Snapshot], Settings]],
    exposition: ExpositionOfAll,
    clock: Callable[[], int],
    door: Door,
) -> Starlette:
    """The application for what is not of one cluster. `clusters` has the newest snapshot and the settings of each
    cluster, `exposition` the metrics made of them; `clock` gives ms since 1970.
    """
    first_snapshot, first = clusters[0]
    sources = ReadSources(first_snapshot, first, clock, lambda: [snapshot() for snapshot, _ in clusters])

    def ready(_request: Request) -> Response:
        problems = [
            f"{settings.kafka.cluster_name}: {problem}"
            for snapshot, settings in clusters
            for problem in problems_of(snapshot(), settings.serve, now_ms=clock())
        ]
        return JSONResponse({"ready": not problems, "problems": problems}, status_code=503 if problems else 200)

    def metrics(request: Request) -> Response:
        form = form_of(request)
        return metrics_answer(form, exposition.answer(form, door.sign_in.may_see(request, now_ms=clock())))

    return Starlette(
        routes=[
            *page_routes(PAGE_OF_ALL),
            Route("/metrics", metrics),
            Route("/healthz", healthy),
            Route("/readyz", ready),
            clusters_route(sources, door.sign_in),
            openapi_route(),
            *door.routes(None),
        ],
        exception_handlers={HTTPException: answer_problem},
        middleware=door.middleware(None),
    )
