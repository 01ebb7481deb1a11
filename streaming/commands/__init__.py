"""One module per command of `rebalancer`; each imports what it needs and no more, so that commands start fast."""
