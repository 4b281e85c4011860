"""What several suites would fetch and make at the same moment: Kafka's jars, and the stored classes of its brokers.

`python -m tests.support.prepare`; a second run finds everything. Without it the first clusters start while another
suite makes the classes, so without them.
"""

import sys

from discovery.core.errors import DiscoveryError
from discovery.localkafka.cluster import LocalKafka
from discovery.localkafka.jars.download import client_jars
from discovery.localkafka.properties import ClusterSettings

if __name__ == "__main__":
    try:
        client_jars()
        with LocalKafka(ClusterSettings(brokers=1)):
            pass
    except DiscoveryError as error:
        sys.exit(f"kafka-discovery: {error}")
