"""What describes a client, the report; without a cluster."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.core.errors import ConfigError
from discovery.core.interest import CUT_LEDGER_TOPIC
from discovery.core.model import BrokerAddress, Verdict
from discovery.core.policy import Policy
from discovery.core.prediction.clients import ClientKind, ClientVersion
from discovery.core.prediction.forecast import FailureMode
from discovery.core.prediction.removal import TRANSACTIONS
from discovery.doctor.diagnose import Weight, diagnose, percent
from discovery.doctor.examine import with_ledgers
from discovery.doctor.facts import Facts, Seen, failure_mode_of
from discovery.doctor.inputs import Described, described
from discovery.doctor.render import document, report
from tests.support.fakes.cluster import FakeCluster, FakeNetwork
from tests.support.fakes.gateway import FakeGateway
from tests.support.faults import refused_port

LIST = "b1:9092,b2:9092"


def written(folder: Path, text: str) -> Path:
    file = folder / "conf"
    file.write_text(text)
    return file


def test_given_a_spark_configuration_when_read_then_list_login_version_and_executors_are_known(tmp_path: Path) -> None:
    found = described(
        spark_conf=written(
            tmp_path,
            "# a comment\nspark.master   yarn\n"
            "spark.jars.packages org.apache.spark:spark-sql-kafka-0-10_2.12:3.1.2\n"
            f"spark.dau.kafka.bootstrap.servers={LIST}\nkafka.default.api.timeout.ms 20000\n"
            "spark.dau.kafka.security.protocol PLAINTEXT\nspark.dau.kafka.ssl.provider x\nspark.kafkaesque 1\n",
        )
    )
    assert list(map(str, found.addresses)) == LIST.split(",")
    assert (found.client.version, found.client.limits.api_seconds) == (ClientVersion(2, 6), 20)
    assert (found.remote_executors, found.origin, found.ignored) == (True, "spark.jars.packages", ("ssl.provider",))
    assert found.options.librdkafka["security.protocol"] == "PLAINTEXT"


def test_given_a_spark_configuration_when_read_then_it_says_how_often_spark_tries(tmp_path: Path) -> None:
    conf = f"kafka.bootstrap.servers {LIST}\n"
    assert described(spark_conf=written(tmp_path, conf)).tries == 3
    assert described(spark_conf=written(tmp_path, f"{conf}spark.dau.fetchOffset.numRetries 5\n")).tries == 5
    assert described(bootstrap=LIST).tries == 1
    with pytest.raises(ConfigError, match="numRetries: 'no'"):
        described(spark_conf=written(tmp_path, f"{conf}fetchOffset.numRetries no\n"))
    dead = Facts(listed=(seen("b1", FailureMode.REFUSED),))
    found = diagnose(dead, described(spark_conf=written(tmp_path, conf)))
    (reported,) = [one.sentence for one in found.findings if one.code == "spark-tries"]
    assert reported.endswith("100 % of its queries do, after 182 s.")
    well = Facts(listed=(seen("b1", None),))
    assert "spark-tries" not in {one.code for one in diagnose(well, described(spark_conf=tmp_path / "conf")).findings}


def test_given_flink_lines_when_read_then_yaml_and_sql_are_the_same(tmp_path: Path) -> None:
    for text in (
        f"jobmanager.rpc.address: jm\nproperties.bootstrap.servers: {LIST}\n",
        f"jobmanager.rpc.address: jm\n  'properties.bootstrap.servers' = '{LIST}',\n",
    ):
        found = described(flink_conf=written(tmp_path, text), client_version="4.1", kind=ClientKind.CONSUMER)
        assert list(map(str, found.addresses)) == LIST.split(",")
        assert found.remote_executors


def test_given_java_properties_when_read_then_long_lines_are_joined_and_no_secret_is_shown(tmp_path: Path) -> None:
    text = (
        "bootstrap.servers = b1:9092,\\\n  b2:9092\nsasl.mechanism=PLAIN\nsecurity.protocol=SASL_PLAINTEXT\n"
        'sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="u" '
        'password="hush";\n'
    )
    found = described(properties=written(tmp_path, text))
    assert list(map(str, found.addresses)) == LIST.split(",")
    assert found.options.librdkafka["sasl.password"] == "hush"
    assert "hush" not in repr(found)
    assert described(properties=written(tmp_path, text), bootstrap="b9:9092").addresses[0].host == "b9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nothing=here\n", "no list of brokers"),
        ("bootstrap.servers=b1\n", "'b1' is not an address"),
        (f"bootstrap.servers={LIST}\nrequest.timeout.ms=soon\n", "'soon' is not a number of milliseconds"),
        (f"bootstrap.servers={LIST}\nsecurity.protocol=TLS\n", "'TLS' is none of"),
        (b"\xff\xfe\x00".decode("latin-1"), "no list of brokers"),
    ],
)
def test_given_a_file_that_will_not_do_when_read_then_one_line_says_why(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        described(properties=written(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_given_no_file_or_no_text_when_read_then_the_option_is_named(tmp_path: Path) -> None:
    binary, huge = tmp_path / "binary", tmp_path / "huge"
    binary.write_bytes(b"\xff\xfe\x00")
    huge.write_bytes(b"a=b\n" * (2 << 20))
    for path in (tmp_path / "none", tmp_path, binary, huge):
        with pytest.raises(ConfigError, match="--spark-conf: "):
            described(spark_conf=path)


def seen(name: str, mode: FailureMode | None) -> Seen:
    verdict = Verdict.ALIVE if mode is None else Verdict.SILENT
    return Seen(address=BrokerAddress(name, 9092), verdict=verdict, failure_mode=mode)


def plain(bootstrap: str = LIST, version: str = "3.9") -> Described:
    return described(bootstrap=bootstrap, client_version=version)


@pytest.mark.parametrize("mode", [None, *FailureMode])
@pytest.mark.parametrize("version", ["2.6", "4.1"])
def test_given_any_fate_of_a_list_when_reported_then_text_and_json_can_be_made(
    mode: FailureMode | None, version: str
) -> None:
    for fates in ((None, mode), (mode, mode), (mode,)):
        facts = Facts(listed=tuple(seen(f"b{n}", fate) for n, fate in enumerate(fates)), unknown="nobody <asked>")
        found = diagnose(facts, plain(version=version))
        assert "=None" not in report(found).plain
        json.dumps(document(found))


def test_given_a_ledger_of_cuts_in_kafka_when_diagnosed_then_it_says_how_many_deaths_stop_cuts() -> None:
    network = FakeNetwork()
    cluster = FakeCluster(network)
    gateway = FakeGateway(network, tuple(cluster.addresses.values()))
    well = Facts(listed=(seen("b1", None),), leaderless=())

    def looked() -> Facts:
        return with_ledgers(well, gateway.fetch_metadata(None, timeout_seconds=1).topics, gateway, Policy())

    def said(facts: Facts) -> list[tuple[str, Weight, str]]:
        found = diagnose(facts, plain()).findings
        return [(one.code, one.weight, one.sentence) for one in found if one.code.startswith("cuts")]

    cluster.create_topic(TRANSACTIONS, 2, replication=2)
    assert said(looked()) == [], "nobody keeps cuts here"
    cluster.create_topic(CUT_LEDGER_TOPIC, 1, replication=3)
    ((code, weight, sentence),) = said(looked())
    assert (code, weight) == ("cuts-stop", Weight.NOTE)
    assert "cut nothing once 2 brokers with a replica of __transaction_state are dead" in sentence
    ((code, weight, sentence),) = said(replace(well, ledger_deaths={CUT_LEDGER_TOPIC: 1, TRANSACTIONS: 1}))
    assert (code, weight) == ("cuts-stop", Weight.WARN)
    assert "once 1 broker with a replica of __kafka_discovery_cuts and __transaction_state is dead" in sentence
    ((code, weight, sentence),) = said(replace(well, ledgers_unknown="grant DescribeConfigs"))
    assert (code, weight) == ("cuts-unknown", Weight.NOTE)
    assert sentence.endswith("is not known: grant DescribeConfigs.")


def test_given_verdicts_when_a_client_meets_them_then_each_has_its_failure_mode() -> None:
    reported = {v: failure_mode_of(v, connected=False, no_route=False) for v in Verdict}
    assert reported[Verdict.SILENT] is FailureMode.BLACK_HOLE
    assert failure_mode_of(Verdict.SILENT, connected=True, no_route=False) is FailureMode.SILENT
    assert failure_mode_of(Verdict.SILENT, connected=False, no_route=True) is FailureMode.UNREACHABLE
    assert reported[Verdict.TLS_FAILED] is reported[Verdict.AUTH_FAILED] is FailureMode.AUTH_REJECTED
    assert reported[Verdict.NOT_KAFKA] is reported[Verdict.REFUSED] is FailureMode.REFUSED
    assert reported[Verdict.ALIVE] is reported[Verdict.STALE] is reported[Verdict.FOREIGN_CLUSTER] is None


def test_given_probabilities_when_written_then_none_is_rounded_to_never_or_always() -> None:
    assert [percent(p) for p in (0, 0.0001, 0.02, 0.086, 0.666, 0.999, 1)] == [
        "0 %", "under 0.1 %", "2.0 %", "8.6 %", "67 %", "over 99 %", "100 %",
    ]  # fmt: skip


def test_given_a_refusing_address_when_the_command_runs_then_it_reports_and_exits_3() -> None:
    with refused_port() as address:
        arguments = ["doctor", "--bootstrap", address, "--timeout", "1"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 3, done.output
        assert "The one address of the list is dead" in done.output
        reported = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert (reported["weight"], reported["listed"][0]["failed_stage"]) == ("grave", "connection")
    wrong = CliRunner().invoke(app, ["doctor", "--bootstrap", "b1:9092", "--client-version", "x"])
    assert isinstance(wrong.exception, ConfigError)


def test_given_findings_when_weighed_then_the_gravest_counts() -> None:
    facts = Facts(listed=(seen("b1", None), seen("b2", None)), leaderless=(), partitions=3)
    assert diagnose(facts, plain()).weight is Weight.FINE
