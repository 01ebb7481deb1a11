"""The HTTP side: routes over the newest snapshot. Knows no table.

/            page for people, refreshes itself, with a form to sign in
/metrics     Prometheus text, or OpenMetrics where Accept asks for it
/api/status  the snapshot as JSON, its longest lists in part
/api/weights bytes written per second to each partition, of all topics or of those given as ?topic=A&topic=B
/healthz     200 while the process answers
/readyz      200 while the snapshot is fresh and every part of it could be read, else 503 and why
/api/v1/...  lists with history, from the tables, and a stream of events: see `streaming.serve.api`

A serve for several clusters has these instead, of which /clusters/NAME/ is as a serve for this cluster alone:

/                    page for people: all clusters, the worst first
/metrics             the series of all clusters
/api/v1/clusters     what the page shows, as JSON
                     (if `serve.reading` is `signed_in`, both have only clusters on which the reader has a role)
/healthz, /readyz    of the process; the second one names the clusters that can't be read
/clusters/NAME/...   page, metrics and API of one cluster
"""

import ipaddress
import posixpath
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Self

import structlog
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from streaming.serve import access
from streaming.serve.access import SignIn
from streaming.serve.api.audit import Actions
from streaming.serve.api.events import Events
from streaming.serve.api.pages import answer
from streaming.serve.api.problems import answer_problem
from streaming.serve.api.read_sources import ReadSources, RestartChecks
from streaming.serve.api.routes import api_routes, clusters_route, openapi_route
from streaming.serve.metrics import Exposition, ExpositionOfAll, Form
from streaming.serve.snapshot import Snapshot, old_after_ms
from streaming.serve.status import status_of, weights_of
from streaming.settings import ServeSettings, Settings

log = structlog.get_logger()
EVERY_NAME = "*"
NAMED_MAX = 10
"""Refused names that are logged at most; whoever sends the requests chooses them."""
REFUSED = "421: this host name is not allowed; serve.allowed_hosts lists names besides localhost and addresses\n"
POLICY = (
    "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; "
    "connect-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'"
)
"""Nothing is fetched from anywhere else, nothing inside the page runs, and nothing else may embed it. Bars have their
widths as styles. Forms are sent by script alone: a browser that sends one itself might put a password into an
address."""
PAGE, PAGE_OF_ALL = "page.html", "clusters.html"
"""The page of one cluster, and that of several."""
_SCRIPT = re.compile(r'<script type="module" src="([^"]+)">')
_IMPORT = re.compile(r'(?:^|;)import\b[^;"]*"(\.[^"]+)"', re.MULTILINE)
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


@dataclass(frozen=True, slots=True)
class Door:
    """Who may ask, with the routes by which people sign in: one for all clusters of a serve, as a session is.

    `routes` and `middleware` take the name of the cluster whose application has them, None for what all clusters share.
    """

    sign_in: SignIn
    routes: Callable[[str | None], Sequence[BaseRoute]]
    middleware: Callable[[str | None], Sequence[Middleware]]
    open_streams: Counter[str]
    """Streams of events that are open, by network."""

    @classmethod
    def of(cls, serve: ServeSettings, clock: Callable[[], int]) -> Self:
        """Returns the door that these settings describe; `clock` gives ms since 1970."""
        sign_in = SignIn(serve)
        hosts = Middleware(AllowedHosts, [serve.host, *serve.allowed_hosts])

        def middleware(cluster: str | None) -> list[Middleware]:
            return [hosts, *access.middleware(sign_in, clock, cluster)]

        return cls(sign_in, access.routes_of(sign_in, clock), middleware, Counter())


def build_app(
    snapshot: Callable[[], Snapshot],
    exposition: Exposition,
    settings: Settings,
    clock: Callable[[], int],
    actions: Actions,
    *,
    door: Door | None = None,
    of_all: Callable[[], Sequence[Snapshot]] | None = None,
) -> Starlette:
    """The application over `snapshot`, which returns the newest one at once, and the metrics made of it.

    `clock` gives ms since 1970; `actions` is what requests that act ask. `app.state.events` has the streams of events,
    which must be closed before the process can end. `door` and `of_all`, the snapshots of all clusters, are given if
    this is one of several clusters.
    """
    door = door or Door.of(settings.serve, clock)
    sources = ReadSources(snapshot, settings, clock, of_all, RestartChecks(actions.restart_check, clock))
    events = Events(sources, door.sign_in, door.open_streams)

    def status(request: Request) -> Response:
        return answer(request, status_of(snapshot()))

    def weights(request: Request) -> Response:
        return answer(request, weights_of(snapshot().load, request.query_params.getlist("topic")))

    def ready(_request: Request) -> Response:
        return ready_answer(problems_of(snapshot(), settings.serve, now_ms=clock()))

    app = Starlette(
        routes=[
            *page_routes(PAGE),
            metrics_route(exposition),
            Route("/api/status", status),
            Route("/api/weights", weights),
            Route("/healthz", healthy),
            Route("/readyz", ready),
            *api_routes(sources, door.sign_in, actions, events, door.routes(sources.kafka_cluster)),
        ],
        exception_handlers={HTTPException: answer_problem},
        middleware=door.middleware(sources.kafka_cluster),
    )
    app.state.events = events
    return app


def metrics_route(exposition: Exposition) -> Route:
    """Returns the route of the metrics of one cluster."""

    async def metrics(request: Request) -> Response:
        form = form_of(request)
        # Not through a thread where the bytes lie ready: each change of threads may wait for the one that reads tables.
        lying = exposition.ready(form)
        return metrics_answer(form, lying if lying is not None else await run_in_threadpool(exposition.answer, form))

    return Route("/metrics", metrics)


def form_of(request: Request) -> Form:
    """Returns the form of metrics that a request asks for."""
    return Form.of(request.headers.get("accept", ""), request.headers.get("accept-encoding", ""))


def metrics_answer(form: Form, body: bytes) -> Response:
    """Returns the answer with metrics in this form. No cache may hand it on: who else asks may see other clusters."""
    headers = {"Vary": "Accept, Accept-Encoding", "Cache-Control": "private, no-cache"}
    headers |= {"Content-Encoding": "gzip"} if form.packed else {}
    return Response(body, media_type=form.content_type, headers=headers)


def healthy(_request: Request) -> Response:
    """Answers while the process does."""
    return PlainTextResponse("ok\n")


def ready_answer(problems: list[str]) -> Response:
    """Returns the answer of /readyz."""
    return JSONResponse({"ready": not problems, "problems": problems}, status_code=503 if problems else 200)


def problems_of(snapshot: Snapshot, serve: ServeSettings, *, now_ms: int) -> list[str]:
    age_ms = now_ms - snapshot.read_at_ms
    stale = [f"the snapshot is {age_ms / 1000:.0f} s old"] if age_ms > old_after_ms(serve) else []
    failures = sorted(snapshot.failures.items())
    if serve.reading == "signed_in":  # a reason may name folders, hosts and topics
        return stale + [f"{part}: can't be read" for part, _ in failures]
    return stale + [f"{part}: {reason}" for part, reason in failures]


def page_routes(first: str) -> list[Route]:
    """A route for the page whose file is `first`, and for each style and script in the folder `page`, read once."""
    return [
        Route("/" if name == first else f"/{name}", _answering(text, _kind(name)))
        for name, text in page_files().items()
        if name == first or _kind(name) != "html"
    ]


def _kind(name: str) -> str:
    return name.rpartition(".")[2]


def _answering(text: str, kind: str) -> Callable[[Request], Response]:
    headers = {"X-Content-Type-Options": "nosniff"}
    headers |= {"Content-Security-Policy": POLICY} if kind == "html" else {"Cache-Control": "no-cache"}

    def answering(_request: Request) -> Response:
        return Response(text, headers=headers, media_type=TYPES[kind])

    return answering


@cache
def page_files() -> dict[str, str]:
    """Name: text of each file of the page, with its path below the folder of the page as its name. A line of the two
    pages that names a part, such as `<!-- head.html -->`, is replaced by the part. Each page names all modules that it
    needs, so that a browser asks for them at once, not for each when it has read the one that imports it.
    """
    texts = _texts_below(files("streaming.serve").joinpath("page"), "")
    parts = {name: texts.pop(name) for name in [*texts] if _kind(name) == "html" and name not in (PAGE, PAGE_OF_ALL)}
    for page in (PAGE, PAGE_OF_ALL):
        for name, part in parts.items():
            texts[page] = texts[page].replace(f"<!-- {name} -->\n", part)
        modules = sorted(_modules_of(texts[page], texts))
        links = "".join(f'<link rel="modulepreload" href="{name}">\n' for name in modules)
        texts[page] = texts[page].replace("</head>\n", f"{links}</head>\n")
    return texts


def _modules_of(page: str, texts: Mapping[str, str]) -> set[str]:
    """Names of the scripts of a page: those that it names, and all that they import."""
    found, unread = set[str](), _SCRIPT.findall(page)
    while unread:
        name = unread.pop()
        if name not in found:
            found.add(name)
            folder = posixpath.dirname(name)
            unread += [posixpath.normpath(posixpath.join(folder, path)) for path in _IMPORT.findall(texts[name])]
    return found


def _texts_below(folder: Traversable, above: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for entry in folder.iterdir():
        if entry.is_dir():
            texts |= _texts_below(entry, f"{above}{entry.name}/")
        elif _kind(entry.name) in TYPES:
            texts[above + entry.name] = entry.read_text(encoding="utf-8")
    return texts


class AllowedHosts:
    """ASGI middleware: 421 (RFC 9110, misdirected request) for a `Host` that is not allowed.

    A page of another site must not read this one (DNS rebinding). Such a page lies at a name whose owner lets it point
    to this machine, so the browser sends that name. An address can't be made to point elsewhere, so addresses are
    always allowed: Prometheus that scrapes by address needs no setting. Starlette's TrustedHostMiddleware is no help:
    it knows no IPv6 address, no "any address", and answers 400.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names) | {"localhost", socket.gethostname().lower()}
        self._logged: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass."""
        host = Request(scope).headers.get("host", "") if scope["type"] == "http" else ""
        if not host or self.allows(host):  # every browser sends it
            await self._app(scope, receive, send)
            return
        if host not in self._logged and len(self._logged) < NAMED_MAX:
            self._logged.add(host)
            log.warning("host_refused", host=host[:255])
        await PlainTextResponse(REFUSED, status_code=421)(scope, receive, send)

    def allows(self, host: str) -> bool:
        """Whether a `Host`, with or without a port, is an address or an allowed name."""
        name = name_of(host)
        if EVERY_NAME in self._names or is_address(name) or name in self._names:
            return True
        return any(name.endswith(own[1:]) for own in self._names if own.startswith("*."))


def name_of(host: str) -> str:
    """The name or address of a `Host`, in lower case, without the port and without the dot at its end.

    >>> name_of("Rebalancer.example.:9464"), name_of("[::1]:9464"), name_of("10.0.0.1")
    ('rebalancer.example', '::1', '10.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0 if ":" in host else 2].lower().removesuffix(".")


def is_address(name: str) -> bool:
    """Whether this is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


BELOW = re.compile(r"/clusters/([^/]+)(/.*)?", re.DOTALL)


class ClusterRouter:
    """ASGI application: hands a request below /clusters/NAME to the application of that cluster, others to `shared`."""

    def __init__(self) -> None:
        self._shared: ASGIApp = Starlette()
        self.clusters: Mapping[str, Starlette] = {}

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
        return ready_answer(problems)

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
