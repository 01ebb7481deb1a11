"""moto's server with one put at a time: `python -m tests.s3_store -H HOST -p PORT`.

moto looks whether an object is there and then makes it. Between the two another request may do the same, and both are
told that they made it. A real store decides at once.

It logs no requests. Who starts it reads its log by a pipe, and a call of delta-rs can keep the reading thread from
running: a full pipe would stop the server, and with it that call.
"""

import importlib
import threading
from contextlib import nullcontext
from typing import Any

SERVER = importlib.import_module("moto.server")
MOTOS_APPLICATION = SERVER.DomainDispatcherApplication
REQUEST_HANDLER = importlib.import_module("werkzeug.serving").WSGIRequestHandler


class OnePutAtATime:
    """The application of moto's server, which answers the puts one after the other."""

    def __init__(self, *arguments: Any) -> None:
        self._application = MOTOS_APPLICATION(*arguments)
        self._puts = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        """Answer a request."""
        with self._puts if environ["REQUEST_METHOD"] == "PUT" else nullcontext():
            return self._application(environ, start_response)


if __name__ == "__main__":
    SERVER.__dict__["DomainDispatcherApplication"] = OnePutAtATime
    REQUEST_HANDLER.log_request = lambda *_: None
    SERVER.main()
