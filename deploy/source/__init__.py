"""The one source of rules, dashboards and manifests."""
