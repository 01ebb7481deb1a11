"""Samples that others write, as records of ours: one pure parser per format. Knows neither Spark nor a clock.

A parser takes the bytes of one Kafka record and gives our own records of both kinds (byte rates, consumer lag) as
dicts. What it doesn't know of it leaves out: such topics carry hundreds of other metrics. What it can't read is a
Misfit, raised for the whole or in the place of a part. The bytes of one topic on a broker are left out too: Kafka's
MBeans don't know them by partition, the collector does.
"""

from streaming.pipeline.adapters.cruise_control import read_cruise_control
from streaming.pipeline.adapters.normal import Context, Misfit, Parser, Record
from streaming.pipeline.adapters.otlp import read_otlp
from streaming.pipeline.adapters.prometheus import read_prometheus
from streaming.pipeline.adapters.telegraf import read_telegraf

PARSERS: dict[str, Parser] = {
    "cruise-control": read_cruise_control,
    "telegraf-json": read_telegraf,
    "otlp-json": read_otlp,
    "prometheus-json": read_prometheus,
}
"""Parsers by the name that the settings use."""

__all__ = ["PARSERS", "Context", "Misfit", "Parser", "Record"]
