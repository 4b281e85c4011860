"""Source, service and sink together on real brokers: what `make chaos` breaks, and what it holds them to."""
