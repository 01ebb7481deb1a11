"""Variables of the environment that the HTTP client takes for certificates and proxies, and can't use."""

UNUSABLE = [
    ("SSL_CERT_FILE", "/not/there.pem", "FileNotFoundError"),
    ("SSL_CERT_FILE", "/etc/passwd", "SSLError"),
    ("HTTPS_PROXY", "socks5://127.0.0.1:1", "ImportError"),
    ("HTTPS_PROXY", "ftp://127.0.0.1:1", "ValueError"),
    ("HTTPS_PROXY", "127.0.0.1:port", "InvalidURL"),
]
"""(Variable, value, error of the client)."""
