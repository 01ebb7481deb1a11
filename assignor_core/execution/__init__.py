"""Carrying out a plan: the next step told from the cluster, staging, caution. Pure."""
