"""What operators deploy. Everything generated here comes from `deploy/source`: `python -m deploy.generate`."""
