"""Simulate: scenario files in, text, JSON and timelines out. The protocol itself is `assignor_core.group`."""
