"""Other versions than those of `make test`: each cell is a real run, kept in `results.json`, and shown on a page."""
