"""Carrying out a plan: the next step read off the cluster, staging, caution. Pure."""
