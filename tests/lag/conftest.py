"""Tests of lag write tables as tests of serve do, where the `settings` of their module are. Those on brokers have the
`settings` of `tests/conftest.py`.
"""

from tests.serve.conftest import root, synthetic

__all__ = ["root", "synthetic"]
