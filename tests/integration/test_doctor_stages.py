"""The stages of one address: a name, a connection, TLS, Kafka; each timed, and the one that failed named."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import create_server

import pytest
import trustme

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.core.model import Verdict, parse_bootstrap_servers
from discovery.core.policy import Policy
from discovery.core.prediction.forecast import FailureMode
from discovery.doctor.examine import examine
from discovery.doctor.facts import Seen
from tests.support.fakes.mock_cluster import MockCluster
from tests.support.faults import UNRESOLVABLE, Garbage, accept_and_hang, garbage_speaker
from tests.support.ports import free_port

QUICK = Policy(connect_timeout_seconds=2, request_timeout_seconds=2)


@contextmanager
def tls_server(authority: trustme.CA) -> Iterator[str]:
    """Yield an address that shakes hands with a certificate of this authority, and then stays silent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    ended = threading.Event()
    with create_server(("127.0.0.1", free_port())) as listener:
        listener.settimeout(0.1)

        def serve() -> None:
            kept = []
            while not ended.is_set():
                with suppress(OSError):
                    client, _ = listener.accept()
                    client.settimeout(5)
                    kept.append(context.wrap_socket(client, server_side=True))
            for one in kept:
                one.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"localhost:{listener.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(10)


def look(address: str, **options: str) -> Seen:
    given = open_stores(map_client_options({name.replace("_", "."): value for name, value in options.items()}))
    return examine(parse_bootstrap_servers(address), given, QUICK).listed[0]


def test_given_a_broker_when_looked_at_then_connection_and_kafka_are_timed() -> None:
    with MockCluster(1) as mock:
        host, _, port = mock.bootstrap_servers.rpartition(":")
        assert host == "127.0.0.1"
        seen = look(f"localhost:{port}")
    assert (seen.verdict, seen.stage, seen.failure_mode) == (Verdict.ALIVE, "", None)
    assert seen.stages.lookup is not None
    assert seen.stages.connect is not None
    assert seen.stages.kafka is not None
    assert seen.stages.tls is None


def test_given_a_name_that_is_gone_when_looked_at_then_it_ends_at_the_name() -> None:
    seen = look(UNRESOLVABLE)
    assert (seen.verdict, seen.stage, seen.stages.connect) == (Verdict.UNRESOLVABLE, "name", None)


def test_given_silence_or_garbage_when_looked_at_then_it_ends_at_kafka() -> None:
    with accept_and_hang() as silent, garbage_speaker(Garbage.SSH) as strange:
        assert (look(silent).stage, look(silent).failure_mode) == ("Kafka", FailureMode.SILENT)
        assert (look(strange).stage, look(strange).failure_mode) == ("Kafka", FailureMode.REFUSED)


@pytest.mark.parametrize("trusted", [True, False])
def test_given_a_tls_listener_when_looked_at_then_the_handshake_is_timed_and_distrust_ends_at_tls(
    *, trusted: bool, tmp_path: Path
) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    file = tmp_path / "ca.pem"
    (authority if trusted else stranger).cert_pem.write_to_path(str(file))
    with tls_server(authority) as address:
        seen = look(address, security_protocol="SSL", ssl_truststore_location=str(file), ssl_truststore_type="PEM")
    assert seen.stages.tls is not None
    wanted = (
        (Verdict.SILENT, "Kafka", FailureMode.SILENT)
        if trusted
        else (Verdict.TLS_FAILED, "TLS", FailureMode.AUTH_REJECTED)
    )
    assert (seen.verdict, seen.stage, seen.failure_mode) == wanted, seen
