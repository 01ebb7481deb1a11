"""Deciding when skew is worth a plan: trigger, maintenance hours, the simulator behind `backtest`. Pure."""
