"""Collect: observe brokers and groups, turn two observations into rates, write the two topics. Knows no Spark."""
