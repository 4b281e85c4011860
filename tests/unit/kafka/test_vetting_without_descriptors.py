"""Running out of descriptors is this process's fault: no broker is judged by it."""

import json
import subprocess
import sys

import pytest

_SCRIPT = """
import json, socket, sys
from discovery.config.client.options import map_client_options
from discovery.core.model import BrokerAddress
from discovery.core.policy import Policy
from discovery.kafka.vetting.vet import LibrdkafkaVetter
from tests.support.descriptors import used_up

listener = socket.create_server(("127.0.0.1", 0))
vetter = LibrdkafkaVetter(map_client_options({}), Policy())
addresses = [BrokerAddress("127.0.0.1", listener.getsockname()[1]), BrokerAddress("localhost", 9),
             BrokerAddress("no-such-name.invalid", 9)]

def vet():
    seen = []
    vetter.vet(addresses, connect_timeout_seconds=2, request_timeout_seconds=1, full=addresses, on_outcome=seen.append)
    return seen

vet()
held = used_up(int(sys.argv[1]))
seen = vet()
held.clear()
print(json.dumps([[str(o.address), o.failure.value if o.failure else None, o.tcp_only, o.detail] for o in seen]))
"""


@pytest.mark.parametrize("left", [0, 1, 3])
def test_given_a_process_out_of_descriptors_when_brokers_are_vetted_then_none_is_judged(left: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(left)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == 3
    for _, failure, tcp_only, detail in seen:
        assert (failure, tcp_only) == (None, True), seen
        assert detail.startswith("not asked: this process is out of file descriptors")
