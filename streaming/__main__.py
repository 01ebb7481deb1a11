"""`python -m streaming` is `rebalancer`."""

from streaming.cli import main

main()
