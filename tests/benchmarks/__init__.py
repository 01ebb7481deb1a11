"""Benchmarks: seeded models and the figures that plans and assignments reach on them."""
