"""Deciding when skew is worth a plan: needs, gates, the trigger, and one step that drives them. Pure."""
