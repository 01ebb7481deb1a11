"""Kept public name of `streaming.client.consumer`: assignors for kafka-python consumers."""

from streaming.client.consumer import (
    CooperativeLoadAware,
    CooperativeSticky,
    LoadAware,
    Range,
    RoundRobin,
    Sticky,
)

__all__ = ["CooperativeLoadAware", "CooperativeSticky", "LoadAware", "Range", "RoundRobin", "Sticky"]
