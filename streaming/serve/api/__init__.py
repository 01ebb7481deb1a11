"""The HTTP API below `/api/v1`: what tables and the newest snapshot say, as JSON, described at `/api/openapi.json`."""
