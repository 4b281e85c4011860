"""The local bootstrap endpoint: one address on this host that leads any Kafka client to a vetted, living broker.

`server.py` listens and pipes bytes; `guards.py` decides where to, by standing connections to verified brokers;
`selection.py` (pure) says which brokers deserve a guard. `make.py` joins an endpoint and a discovery loop.
"""
