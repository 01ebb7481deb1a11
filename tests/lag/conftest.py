"""Tests of lag use the settings and the writer of tables that tests of serve use."""

from tests.serve.conftest import root, settings, synthetic

__all__ = ["root", "settings", "synthetic"]
