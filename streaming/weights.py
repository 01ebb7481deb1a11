"""Kept public name of `streaming.client.weights`: where the load-aware assignors get their weights."""

from streaming.client.weights import WeightSource, endpoint_weights, table_weights

__all__ = ["WeightSource", "endpoint_weights", "table_weights"]
