"""Ten thousand brokers by simulation: the loop's own code on simulated time and brokers (`make simulate-scale`)."""

from benchmarks.scale.words import chart, page, section

PAGE = "docs/explanation/scale.md"
"""What `page` writes."""
__all__ = ["PAGE", "chart", "page", "section"]
