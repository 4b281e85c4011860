"""The service beside a driver: discovery loops behind an HTTP API, metrics and a status page."""
