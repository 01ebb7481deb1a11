"""Serve: metrics, API and page, all from one immutable snapshot of the tables. Knows no Kafka, no Spark, no control."""
