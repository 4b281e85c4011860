"""Health checks of TLS listeners carry the broker's name and the client's certificate: none is a failed login."""

import asyncio
import contextlib
import resource
import socket
import ssl
import threading
from pathlib import Path

import pytest
import trustme

from discovery.config.client.opened_stores import open_stores
from discovery.config.client.options import map_client_options
from discovery.core.answers import ProbeOutcome
from discovery.core.model import BrokerAddress, ClusterId
from discovery.core.policy import Policy
from discovery.endpoint.health_check import certificate, is_answering
from discovery.endpoint.make import KafkaProver
from discovery.endpoint.race import Resolved

WAIT_SECONDS = 10


class Listener:
    """A broker's TLS listener that wants a certificate; counts logins by the name that was asked for."""

    def __init__(self, authority: trustme.CA) -> None:
        self.names: list[str | None] = []
        self.logins = self.failures = 0
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("localhost").configure_cert(self.context)
        authority.configure_trust(self.context)
        self.context.verify_mode = ssl.CERT_REQUIRED
        self.context.sni_callback = lambda _, name, __: self.names.append(name)

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await reader.readexactly(14)
            self.logins += 1
            writer.write(b"\x00\x00\x00\x0a" + asked[8:12] + b"\x00" * 6)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            self.failures += 1
        finally:
            writer.close()


@pytest.mark.parametrize("form", ["text", "files", "none"])
def test_given_a_listener_that_wants_a_certificate_when_checked_then_it_gets_name_and_certificate(
    tmp_path: Path, form: str
) -> None:
    authority = trustme.CA()
    listener, client = Listener(authority), authority.issue_cert("client.example.com")
    client.private_key_pem.write_to_path(tmp_path / "key.pem")
    client.cert_chain_pems[0].write_to_path(tmp_path / "chain.pem")
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    given = {
        "text": {"ssl.certificate.pem": chain.read_text(), "ssl.key.pem": key.read_text()},
        "files": {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)},
        "none": {},
    }[form]

    async def main() -> None:
        server = await asyncio.start_server(listener.talk, "127.0.0.1", 0, ssl=listener.context)
        resolved = Resolved(socket.AF_INET, server.sockets[0].getsockname()[:2])
        prover = KafkaProver(map_client_options({"security.protocol": "SSL", **given}), Policy())
        assert prover.tls is not None
        for _ in range(3):
            assert await is_answering(resolved, "localhost", tls=prover.tls, timeout_seconds=10)
        assert await certificate(resolved, "localhost", tls=prover.tls, timeout_seconds=10)
        server.close()

    asyncio.run(main())
    assert set(listener.names) == {"localhost"}
    assert listener.logins == (0 if form == "none" else 3)


class Stranger(Listener):
    """A TLS listener with a certificate of the same authority, made out to another name; keeps what it receives."""

    def __init__(self, authority: trustme.CA) -> None:
        super().__init__(authority)
        self.received = b""
        authority.issue_cert("kafka.example.com").configure_cert(self.context)
        self.context.verify_mode = ssl.CERT_NONE

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received += await reader.read(100)
        writer.close()


@pytest.mark.parametrize("algorithm", ["https", "none"])
def test_given_a_broker_behind_tls_when_proved_then_it_is_asked_by_name_and_a_stranger_receives_no_login(
    algorithm: str,
) -> None:
    authority = trustme.CA()
    listener = Stranger(authority)
    options = map_client_options(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.pem": authority.cert_pem.bytes().decode(),
            "ssl.endpoint.identification.algorithm": algorithm,
        }
    )

    async def main() -> str | None:
        server = await asyncio.start_server(listener.talk, "127.0.0.1", 0, ssl=listener.context)
        resolved = Resolved(socket.AF_INET, server.sockets[0].getsockname()[:2])
        name = BrokerAddress("localhost", resolved.address[1])
        why = await KafkaProver(options, Policy()).prove(name, resolved, ClusterId("one"))
        server.close()
        return why

    why = asyncio.run(main())
    assert set(listener.names) == {"localhost"}, "a router by SNI finds the broker"
    if algorithm == "https":
        assert "is not made out to localhost" in str(why)
        assert listener.received == b""


def test_given_changed_stores_when_proved_then_proof_and_health_checks_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("discovery.config.client.opened_stores._CONTENTS_CHECK_SECONDS", 0.0)
    before, after = trustme.CA(), trustme.CA()
    listener = Listener(after)
    trust, key = tmp_path / "trust.pem", tmp_path / "key.pem"

    def hold(authority: trustme.CA) -> None:
        authority.cert_pem.write_to_path(trust)
        authority.issue_cert("client.example.com").private_key_and_cert_chain_pem.write_to_path(key)

    hold(before)
    stores = {"ssl.truststore.location": str(trust), "ssl.keystore.location": str(key), "ssl.keystore.type": "PEM"}
    options = open_stores(map_client_options({"security.protocol": "SSL", **stores}))
    prover, cluster_id = KafkaProver(options, Policy()), ClusterId("one")
    # librdkafka's part: a listener without Kafka behind it proves no cluster.
    monkeypatch.setattr(prover, "_vet", lambda address: ProbeOutcome(address=address, cluster_id=cluster_id))

    async def main() -> None:
        server = await asyncio.start_server(listener.talk, "127.0.0.1", 0, ssl=listener.context)
        resolved = Resolved(socket.AF_INET, server.sockets[0].getsockname()[:2])
        name = BrokerAddress("localhost", resolved.address[1])
        assert "does not show the name" in str(await prover.prove(name, resolved, cluster_id))
        hold(after)
        assert await prover.prove(name, resolved, cluster_id) is None
        assert await is_answering(resolved, "localhost", tls=prover.tls, timeout_seconds=10)
        server.close()

    asyncio.run(main())
    assert listener.logins == 1, "the health check logged in by the renewed certificate"


def test_given_a_plain_listener_when_proved_then_the_address_is_asked_that_clients_are_led_to() -> None:
    asked: list[bool] = []

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(True)
        writer.close()

    async def main() -> str | None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        resolved = Resolved(socket.AF_INET, server.sockets[0].getsockname()[:2])
        elsewhere = BrokerAddress("name.invalid", resolved.address[1])
        why = await KafkaProver(map_client_options({}), Policy()).prove(elsewhere, resolved, ClusterId("one"))
        server.close()
        return why

    assert "refused" in str(asyncio.run(main()))
    assert asked


def test_given_a_check_given_up_as_its_handshake_ends_when_the_loop_ends_then_it_is_closed() -> None:
    authority = trustme.CA()
    listener, ended = Listener(authority), threading.Event()
    listener.context.verify_mode = ssl.CERT_NONE

    class GivenUp(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            checks[0].cancel()

    checks: list[asyncio.Task[bool]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.sslobject_class = GivenUp

    def end(server: socket.socket) -> None:
        """Say no farewell; wait for the end of the connection itself."""
        connection, _ = server.accept()
        with socket.socket(fileno=listener.context.wrap_socket(connection, server_side=True).detach()) as plain:
            plain.settimeout(WAIT_SECONDS)
            with contextlib.suppress(ConnectionError):
                while plain.recv(4_096):
                    pass
            ended.set()

    async def main(address: tuple[str, int]) -> None:
        resolved = Resolved(socket.AF_INET, address)
        checks.append(asyncio.ensure_future(is_answering(resolved, "localhost", tls=context, timeout_seconds=10)))
        await asyncio.wait(checks)

    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = threading.Thread(target=end, args=(server,))
        peer.start()
        asyncio.run(main(server.getsockname()))
        peer.join()
    assert checks[0].cancelled()
    assert ended.is_set()


def test_given_a_process_out_of_descriptors_when_a_broker_is_checked_then_it_is_not_blamed() -> None:
    async def main() -> bool:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            return await is_answering(
                Resolved(socket.AF_INET, ("127.0.0.1", 9)), "localhost", tls=None, timeout_seconds=5
            )
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert asyncio.run(main())
