"""Pipeline: the two topics into windowed Delta tables with Spark. Knows neither the planner nor the collector."""
