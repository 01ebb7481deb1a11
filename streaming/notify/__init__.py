"""Notifications to webhooks: what has happened, in which form it is sent, and what was sent.

`occurrences` finds what has happened, `deliveries` is the table of what was sent, `sender` the thread that makes, signs
and sends bodies. Serve starts the thread.
"""
