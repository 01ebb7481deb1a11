"""Executions under faults."""
