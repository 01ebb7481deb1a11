"""Notifications to webhooks: what has happened, in which form it is sent, and what was sent.

`occurrences` reads what has happened, `groups` follows groups that have stopped, `forms` makes and signs bodies,
`deliveries` is the table of what was sent, `sender` the thread that sends. Serve starts it.
"""
