"""Explains a bootstrap list and a client configuration: what a start would do, and what helps."""
