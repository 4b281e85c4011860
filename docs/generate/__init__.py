"""What writes the pages of `docs/reference` from the code; no part of the product.

`make generate` runs them all, a test of the fast half compares the committed pages.
"""
