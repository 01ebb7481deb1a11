"""The Kafka side: clients, the one module that changes a cluster, permissions."""
