"""What closed windows of load show: skew and noise, how long skews last here, what comes back each day. No decision."""
