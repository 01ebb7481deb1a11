"""A fleet: any number of brokers on loopback that speak Kafka's protocol, without a JVM, over one simulated cluster.

`process.FleetProcess` starts one and `synthetic` makes clusters of any size. Clients of the product talk to it as they
talk to brokers; `test_against_brokers.py` compares the answers. What it doesn't serve: Fetch, JoinGroup and the other
requests of consumers, ACLs, creating topics. It announces few versions of each request, the newest among them.
"""
