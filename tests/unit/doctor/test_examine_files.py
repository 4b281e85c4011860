"""A doctor that runs out of descriptors has asked nobody, and says so instead of judging."""

import subprocess
import sys

_SCRIPT = """
import socket
from discovery.config.client.options import map_client_options
from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress
from discovery.core.policy import Policy
from discovery.doctor.examine import examine
from tests.support.descriptors import used_up

listener = socket.create_server(("127.0.0.1", 0))
listed = [BrokerAddress("127.0.0.1", listener.getsockname()[1])]
policy = Policy(connect_timeout_seconds=1.0, request_timeout_seconds=2.0)
options = map_client_options({})
held = used_up(2)
try:
    said = str(examine(listed, options, policy).listed)
except ConfigError as error:
    said = str(error)
held.clear()
print(said)
"""


def test_given_a_process_out_of_descriptors_when_examined_then_no_broker_is_judged() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the brokers were not asked: this process is out of file descriptors"), done.stdout
