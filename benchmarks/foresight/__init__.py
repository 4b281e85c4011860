"""Foresight, proven: what doctor and gate say beforehand, and what real brokers and real JVM clients then do."""
