"""What asking somebody by HTTP may fail with."""

import httpx

HTTP_ERRORS = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError)
"""Of httpx, also when it makes its client: OSError where `SSL_CERT_FILE` is away or holds no certificate, ValueError
where a proxy has a scheme that is none, ImportError where it has one that wants another package. TimeoutError is an
OSError.
"""
