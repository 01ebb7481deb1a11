"""What a cluster's past windows show of its brokers' loads: their level, their noise, and how long skews last."""

from assignor_core.deciding.load_memory.memory import NOTHING_REMEMBERED, LoadMemory, Watched

__all__ = ["NOTHING_REMEMBERED", "LoadMemory", "Watched"]
