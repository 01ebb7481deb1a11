"""Where a browser is sent on the way to the issuer and back."""

from collections.abc import Mapping

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse

NOT_KEPT = {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def to_issuer(endpoint: str, asked: Mapping[str, str]) -> RedirectResponse:
    """To a page of the issuer, with these parameters besides those that its URL has."""
    return RedirectResponse(str(httpx.URL(endpoint).copy_merge_params(asked)), 303, NOT_KEPT)


def url_here(request: Request, path: str) -> str:
    """The URL of a path of serve, by the scheme and host that the browser named."""
    return f"{request.url.scheme}://{request.url.netloc}{path}"
