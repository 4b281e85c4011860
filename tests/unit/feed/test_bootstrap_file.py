"""A bootstrap list in a file."""

import logging
import os
from pathlib import Path

import pytest

from discovery.core.errors import ConfigError
from discovery.feed.bootstrap_file import BootstrapFile
from discovery.spark.source.options.parse import parse_options


def shown(path: Path) -> list[str]:
    return [str(address) for address in BootstrapFile(path).read()]


def test_given_commas_lines_and_comments_when_read_then_each_address_comes_once_in_order(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("b1:9092, b2:9092  # old rack\n\n# b9:9092\nb3:9093\nb1:9092\n")
    assert shown(path) == ["b1:9092", "b2:9092", "b3:9093"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "the list is empty; write at least one host:port"),
        (b"# none\n", "the list is empty"),
        (b"b1", "b1"),
        (b"\xff\xfe", "cannot be read"),
        (b"b1:9092\n" * 10_000, "is larger than 64 KiB"),
    ],
)
def test_given_a_bad_file_when_read_then_one_line_names_it(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "list"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        shown(path)
    assert text in str(error.value)
    assert str(path) in str(error.value)
    with pytest.raises(ConfigError, match="cannot be read"):
        shown(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="cannot be read"):
        shown(tmp_path)


def test_given_a_running_loop_when_the_file_changes_then_its_list_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "list"
    path.write_text("b1:9092")
    file = BootstrapFile(path)
    file.read()
    assert file.look() is None
    # As Kubernetes does: another file takes the name's place.
    (tmp_path / "new").write_text("b2:9092")
    (tmp_path / "new").replace(path)
    assert [str(a) for a in file.look() or ()] == ["b2:9092"]
    assert file.look() is None
    path.write_text("garbage garbage")
    with caplog.at_level(logging.WARNING):
        assert file.look() is None
        os.utime(path, ns=(1, 1))
        assert file.look() is None
        path.unlink()
        assert file.look() is None
    assert caplog.text.count("the list read before stays in use") == 2
    path.write_text("b3:9092")
    assert [str(a) for a in file.look() or ()] == ["b3:9092"]


def test_given_a_file_option_when_parsed_then_no_list_is_needed_and_a_service_is_refused() -> None:
    options = parse_options({"subscribe": "t", "bootstrapServersFile": "/etc/kafka/list"})
    assert (options.bootstrap, options.bootstrap_file) == ((), Path("/etc/kafka/list"))
    with pytest.raises(ConfigError, match="bootstrapServersFile: the service of discoveryUrl has its own list"):
        parse_options({"subscribe": "t", "bootstrapServersFile": "/x", "discoveryUrl": "http://127.0.0.1:9463"})
