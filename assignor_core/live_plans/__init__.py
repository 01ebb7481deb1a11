"""From one snapshot of the live cluster and its measured load to a plan. Knows no trigger and no table."""
