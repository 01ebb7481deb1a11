"""One replay of control in three worlds: recorded windows, recorded decisions, a placed cluster. Pure."""
