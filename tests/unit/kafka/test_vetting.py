"""What one look at an address proves, without a network."""

import errno

import pytest

from discovery.core.model import Verdict
from discovery.kafka.vetting.probe import _by_sight
from discovery.kafka.vetting.sniff import Sniffed, _classify
from discovery.kafka.vetting.tcp_check import _worst


@pytest.mark.parametrize(
    ("data", "seen"),
    [
        (b"\x00\x00\x00\x0a\x00\x00\x6b\x64\x00\x00", Sniffed.KAFKA),
        (b"\x00\x00\x00\x0a\x00\x00\x6b\x65\x00\x00", Sniffed.OTHER),
        (b"\x7f\xff\xff\xff\x00\x00\x6b\x64", Sniffed.OTHER),
        (b"\x15\x03\x03\x00\x02\x02\x46", Sniffed.TLS),
        (b"HTTP/1.1 400", Sniffed.OTHER),
        (b"220", Sniffed.OTHER),
    ],
)
def test_given_first_bytes_then_they_are_recognised(data: bytes, seen: Sniffed) -> None:
    assert _classify(data) is seen


@pytest.mark.parametrize(
    ("seen", "tls_error", "verdict"),
    [
        (Sniffed.OTHER, False, Verdict.NOT_KAFKA),
        (Sniffed.TLS, False, Verdict.TLS_FAILED),
        (Sniffed.KAFKA, False, Verdict.TLS_FAILED),
        (Sniffed.CLOSED, True, Verdict.TLS_FAILED),
        (Sniffed.CLOSED, False, Verdict.REFUSED),
        (Sniffed.SILENT, True, Verdict.TLS_FAILED),
        (Sniffed.SILENT, False, Verdict.SILENT),
    ],
)
def test_given_what_was_seen_then_one_verdict_follows(seen: Sniffed, tls_error: bool, verdict: Verdict) -> None:  # noqa: FBT001
    assert _by_sight(seen, "why", tls=True, tls_error=tls_error).failure is verdict


def test_given_failures_of_several_addresses_then_the_hopeful_one_is_reported() -> None:
    refused, silent = ConnectionRefusedError(), TimeoutError()
    unreachable = OSError(errno.ENETUNREACH, "Network is unreachable")
    assert _worst([refused, silent], 2).failure is Verdict.SILENT
    assert _worst([unreachable, refused], 2).failure is Verdict.REFUSED
    assert _worst([unreachable], 2).detail == "not reachable: Network is unreachable"
    assert _worst([], 2).failure is Verdict.SILENT
