"""What the tables say, once, for all who show it or decide on it."""
