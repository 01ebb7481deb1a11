"""What every process of ours runs on: supervisor, processes, locks, logs, jars."""
