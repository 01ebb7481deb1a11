"""The classic group protocol, simulated: coordinator and consumers as state machines on logical milliseconds.

Import from the modules: `scenario` defines what happens, `simulation.simulate` lets it happen, `figures` and `trace`
hold what came of it.
"""
