"""The demo: embedded KRaft brokers, traffic, and the founding scenario. Also what the tests run brokers with."""
