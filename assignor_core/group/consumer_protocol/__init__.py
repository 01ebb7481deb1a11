"""The consumer group protocol (KIP-848), simulated: brokers assign, and members follow one by one by heartbeats.

Names are Kafka's, of the package `coordinator.group.modern` and of the client's membership manager. `coordinator` is
the brokers' side, `member` the client's, `delivery` what lies between them.
"""
