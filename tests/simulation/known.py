"""Invariants that control is known to break, each with the finding that names it: a mended one leaves this table."""

KNOWN: dict[str, str] = {}
