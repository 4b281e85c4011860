"""A database's name in messages."""

import pytest

from discovery.spark.jobs.jdbc import JdbcOutput


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("jdbc:postgresql://h:5432/db", "jdbc:postgresql://h:5432/db"),
        ("jdbc:postgresql://h/db?user=u&password=secret", "jdbc:postgresql://h/db"),
        ("jdbc:sqlserver://h:1433;databaseName=d;password=secret", "jdbc:sqlserver://h:1433"),
        ("jdbc:oracle:thin:u/secret@//h:1521/service", "jdbc:oracle://h:1521/service"),
        ("jdbc:mysql://u:secret@h/db", "jdbc:mysql://h/db"),
        ("jdbc:mysql://u:sec@secret@h/db?a=b", "jdbc:mysql://h/db"),
        # Here nothing tells a password's end.
        ("jdbc:mysql://u:sec?secret@h/db", "jdbc:..."),
        ("jdbc:oracle:thin:u/sec;secret@h", "jdbc:..."),
        ("jdbc:postgresql://h/db?password=sec@secret", "jdbc:..."),
        ("jdbc:mysql://address=(host=h)(password=secret)/db", "jdbc:..."),
        ("jdbc:db2://h:50000/db:password=secret;", "jdbc:..."),
        ("jdbc:secret", "jdbc:..."),
    ],
)
def test_given_a_url_with_a_password_when_it_is_shown_then_only_kind_and_place_are(url: str, shown: str) -> None:
    assert repr(JdbcOutput(url=url, options={"password": "secret"})) == shown
