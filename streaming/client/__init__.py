"""Assignors that users' consumers import, and the weights by which the assignors assign."""
