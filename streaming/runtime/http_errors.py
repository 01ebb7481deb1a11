"""What asking somebody by HTTP may fail with."""

import httpx

HTTP_ERRORS = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError)
"""Errors that httpx raises, also when it makes its client. OSError: `SSL_CERT_FILE` is missing or holds no certificate.
ValueError: a proxy has a scheme that is none. ImportError: a proxy has a scheme that needs another package.
TimeoutError is an OSError.
"""
