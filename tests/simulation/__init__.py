"""The fault simulation: control as it is, over a simulated cluster and tables in memory, on logical time, from a seed.

It stands with the tests, as the chaos runs and the benchmarks do: it needs control, and no room of the product may
import a role except the commands. The cluster model that it runs on is the product's (`assignor_core`).
"""
