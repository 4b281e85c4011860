"""Judging failures, spending restarts, finding lists, choosing client options: all pure, all by table."""

import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discovery.core.errors import ConfigError
from discovery.core.model import BrokerAddress
from discovery.spark.supervise.budget import Exponential, FailureRate, FixedDelay, GiveUp, Restart, Run, decide
from discovery.spark.supervise.classify import RESTARTABLE, SIGNS, Failure, Finding, classify
from discovery.spark.supervise.hook_server import SERVERS, HookServer, advise, is_local
from discovery.spark.supervise.list_locations import find_places, is_list, keys_of, replaced, shape_of
from discovery.spark.supervise.list_vetting import ListVetter, Vetted
from discovery.spark.supervise.process import Job
from discovery.spark.supervise.report import Attempt, Outcome, Report, worth_a_restart
from discovery.spark.supervise.safe_options import UNKNOWN, clients_of_spark, parse_version, safe_options, version_in

SEEN = [
    (
        Failure.DEAD_LIST,
        (
            "StreamingQueryException: [STREAM_FAILED] Query [id = 1, runId = 2] terminated"
            " with exception: Timed out waiting for a node assignment. Call: describeTopics SQLSTATE: XXKST"
        ),
    ),
    (Failure.DEAD_LIST, "Caused by: ConfigException: No resolvable bootstrap urls given in bootstrap.servers"),
    (Failure.DEAD_LIST, "TimeoutException: Timeout expired while fetching topic metadata"),
    (Failure.DEAD_LIST, "TimeoutException: Failed to update metadata after 60000 ms."),
    (Failure.DEAD_LIST, "TimeoutException: Topic events not present in metadata after 60000 ms."),
    (Failure.DEAD_LIST, "WARN NetworkClient: Bootstrap broker b1:9092 (id: -1 rack: null) disconnected"),
    (Failure.DEAD_LIST, "ERROR no living broker was found in time; b1:9092: refused (connection refused)"),
    (Failure.DEAD_LIST, "discovery.core.errors.KafkaUnreachableError: 3 addresses"),
    (
        Failure.LEADERLESS,
        ("TimeoutException: Timeout of 60000ms expired before the position for partition r1-5 could be determined"),
    ),
    (
        Failure.LEADERLESS,
        "java.util.concurrent.TimeoutException: Cannot fetch record for offset 42 in 120000 milliseconds",
    ),
    (Failure.LEADERLESS, "GatewayError: stallTimeout: no record came for 120 s from the leader of t-0 at offset 5"),
    (Failure.LEADERLESS, "org.apache.kafka.common.errors.LeaderNotAvailableException: There is no leader"),
    (
        Failure.LEADERLESS,
        "There is no leader for this topic-partition as we are in the middle of a leadership election.",
    ),
    (Failure.LEADERLESS, "org.apache.kafka.common.errors.NotLeaderOrFollowerException: For requests intended only"),
    (
        Failure.LEADERLESS,
        "TimeoutException: Expiring 7 record(s) for events-3:120004 ms has passed since batch creation",
    ),
    (Failure.LEADERLESS, "org.apache.kafka.common.errors.NotEnoughReplicasException: Messages are rejected"),
    (
        Failure.AUTHENTICATION,
        (
            "Failed to create new KafkaAdminClient; Caused by: SaslAuthenticationException:"
            " Authentication failed: Invalid username or password"
        ),
    ),
    (Failure.AUTHENTICATION, "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed"),
    (Failure.AUTHENTICATION, "TopicAuthorizationException: Not authorized to access topics: [events]"),
    (
        Failure.AUTHENTICATION,
        "Caused by: javax.net.ssl.SSLHandshakeException: No subject alternative names matching IP",
    ),
    (Failure.AUTHENTICATION, "Not authorized to access group: dau"),
    (
        Failure.AUTHENTICATION,
        "Connection to node -1 failed authentication: Authentication failed due to invalid credentials",
    ),
    (Failure.WRONG_CLUSTER, "every listed address belongs to another cluster (B, not A)"),
    (Failure.WRONG_CLUSTER, "b1:9092: foreign_cluster (it says B)"),
    (Failure.WRONG_CLUSTER, "org.apache.kafka.common.errors.InconsistentClusterIdException: "),
    (Failure.DATA_LOSS, "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] Partitions events-3 have been deleted. SQLSTATE: 22000"),
    (Failure.DATA_LOSS, "Some data may have been lost because they are not available in Kafka any more"),
    (Failure.DATA_LOSS, "discovery.core.errors.DataLossError: offsets 3..7 of events-0"),
    (Failure.DATA_LOSS, "org.apache.kafka.clients.consumer.OffsetOutOfRangeException: Fetch position"),
    (
        Failure.TRANSACTION,
        "discovery.core.errors.TransactionTimeoutError: could not commit orders-0 in time; transactionTimeout is 9 s",
    ),
    (
        Failure.TRANSACTION,
        (
            "Caused by: discovery.core.errors.TransactionError: could not commit orders-0: _FENCED; a later attempt"
            " of this lane has begun"
        ),
    ),
    (
        Failure.CODE,
        (
            "discovery.core.errors.TransactionRefusedError: could not commit orders-0: Unknown topic; topic nowhere"
            " does not exist: create it, or correct the column topic"
        ),
    ),
    (
        Failure.TRANSACTION,
        (
            "discovery.core.errors.TransactionError: sinkId 'orders', lane 0: lane count changing: a start is changing"
            " the number of lanes; start the query again if it does not come to an end"
        ),
    ),
    (
        Failure.TRANSACTION,
        (
            "discovery.core.errors.TransactionError: sinkId 'copy': another run with another number of lanes has"
            " begun, or the control record is gone; start the query again"
        ),
    ),
    (
        Failure.TRANSACTION,
        (
            "discovery.core.errors.TransactionError: sinkId 'orders': batch 3: a start is changing the number of"
            " lanes; restart the query"
        ),
    ),
    (
        Failure.CODE,
        "discovery.core.errors.SinkRefusedError: sinkId 'orders', lane 0: stale batch: batch 3",
    ),
    (Failure.CODE, "UnknownTopicOrPartitionException: This server does not host this topic-partition."),
    (Failure.CODE, "ERROR This server does not host this topic-partition."),
    (Failure.KILLED, "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST"),
    (Failure.KILLED, "Caused by: java.io.EOFException"),
    (Failure.KILLED, "java.lang.OutOfMemoryError: Java heap space"),
    (Failure.KILLED, "SparkException: Job aborted: ExecutorLostFailure (executor 1 exited"),
    (Failure.KILLED, "py4j.protocol.Py4JNetworkError: Answer from Java side is empty"),
    (
        Failure.SLOW_START,
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed to connect"
            " back. SQLSTATE: XXKST"
        ),
    ),
    (Failure.CODE, "ZeroDivisionError: division by zero"),
    (Failure.CODE, ""),
]


@pytest.mark.parametrize(("failure", "text"), SEEN)
def test_given_what_a_job_said_last_when_classified_then_it_is_what_a_person_would_say(
    failure: Failure, text: str
) -> None:
    found = classify(f"INFO all is well\n{text}\n", exit_code=1)
    assert found.failure is failure
    assert found.restartable is (failure in RESTARTABLE)


def test_given_every_sign_when_the_table_is_looked_through_then_some_text_shows_it() -> None:
    import re  # noqa: PLC0415 - here alone

    assert [sign.pattern for sign in SIGNS if not any(re.search(sign.pattern, text) for _, text in SEEN)] == []


def test_given_warnings_that_were_survived_when_the_last_exception_says_otherwise_then_the_exception_counts() -> None:
    text = (
        "WARN Timed out waiting for a node assignment. Call: describeTopics\n"
        "Traceback (most recent call last):\n  File job.py\nKeyError: 'user'\n"
    )
    found = classify(text, exit_code=1)
    assert (found.failure, found.evidence) == (Failure.CODE, "KeyError: 'user'")


def test_given_a_partition_that_timed_out_when_the_client_never_came_beyond_its_list_then_the_list_is_dead() -> None:
    timeout = "Timeout of 60000ms expired before the position for partition e-5 could be determined"
    warning = "WARN NetworkClient: Connection to node -3 (b3/10.0.0.3:9092) could not be established."
    assert classify(f"{warning}\n{timeout}").failure is Failure.DEAD_LIST
    assert classify(f"{warning.replace('-3', '3')}\n{timeout}").failure is Failure.LEADERLESS


def test_given_a_line_as_long_as_a_stack_trace_when_it_is_quoted_then_the_telling_part_is_in_the_quotation() -> None:
    sign = "before the position for partition events-3 could be determined"
    quoted = classify(f"{'Job aborted ' * 200}{sign}{' at org.apache' * 200}").evidence
    assert sign in quoted
    assert len(quoted) <= 300
    assert quoted.startswith(("Job", "aborted"))


def test_given_a_long_line_that_names_an_exception_when_it_is_quoted_then_the_quotation_begins_with_its_name() -> None:
    said = "Timeout of 60000ms expired before the position for partition events-1 could be determined"
    line = f"Lost task 1.0 in stage 0.0 (TID 1) (10.0.0.2 executor driver): {'x' * 300} org.apache.kafka.Timeout"
    quoted = classify(f"{line}Exception: {said}{' at org.apache' * 200}").evidence
    assert quoted.startswith(f"org.apache.kafka.TimeoutException: {said}")


def test_given_a_chained_exception_when_its_cause_is_telling_then_the_cause_counts() -> None:
    text = (
        "Traceback (most recent call last):\nSaslAuthenticationException: no\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\nRuntimeError: the job failed\n"
    )
    assert classify(text, exit_code=1).failure is Failure.AUTHENTICATION


@pytest.mark.parametrize("code", [-9, 137, 52, 139])
def test_given_a_process_that_was_killed_when_it_said_nothing_then_its_exit_code_tells(code: int) -> None:
    assert classify("", exit_code=code).failure is Failure.KILLED


@given(st.text())
def test_given_any_text_when_classified_then_there_is_one_finding(text: str) -> None:
    assert classify(text).failure in Failure


def runs(*ended: float, lasted: float = 1.0) -> list[Run]:
    return [Run(began=end - lasted, ended=end) for end in ended]


def test_given_a_fixed_delay_when_restarts_are_used_up_then_it_gives_up() -> None:
    budget = FixedDelay(restarts=2, delay_seconds=10)
    assert decide(budget, runs(1, 20), fraction=0.0) == Restart(5.0)
    assert isinstance(decide(budget, runs(1, 20, 40), fraction=0.0), GiveUp)


def test_given_an_exponential_budget_when_runs_fail_in_a_row_then_delays_double_up_to_the_cap() -> None:
    budget = Exponential(restarts=9, first_seconds=1, cap_seconds=8)
    delays = [decide(budget, runs(*range(1, n + 1)), fraction=0.999999) for n in range(1, 7)]
    assert [round(one.delay_seconds, 2) for one in delays if isinstance(one, Restart)] == [1, 2, 4, 8, 8, 8]


def test_given_a_run_that_lasted_when_the_next_fails_then_the_row_begins_with_it() -> None:
    budget = Exponential(restarts=2, first_seconds=1, cap_seconds=60, healthy_seconds=300)
    failed = [*runs(1, 2, 3), Run(began=10, ended=400), Run(began=401, ended=402)]
    assert isinstance(decide(budget, failed, fraction=0.0), Restart)
    assert isinstance(decide(budget, [*failed, Run(began=403, ended=404)], fraction=0.0), GiveUp)


def test_given_a_failure_rate_when_old_failures_leave_the_window_then_there_is_budget_again() -> None:
    budget = FailureRate(failures=2, per_seconds=100, delay_seconds=1)
    assert isinstance(decide(budget, runs(1, 2, 3), fraction=0.0), GiveUp)
    assert isinstance(decide(budget, runs(1, 2, 150), fraction=0.0), Restart)


def test_given_no_failed_run_when_asked_then_it_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="need a failed run"):
        decide(FixedDelay(), [], fraction=0.0)


@given(st.integers(1, 100), st.floats(0, 0.999))
def test_given_any_chance_when_a_delay_is_drawn_then_it_is_between_half_and_all_of_it(
    count: int, fraction: float
) -> None:
    made = decide(Exponential(restarts=None, first_seconds=1, cap_seconds=60), runs(*range(count)), fraction=fraction)
    assert isinstance(made, Restart)
    assert 0.5 <= made.delay_seconds <= 60


LIST = "b1:9092,b2:9092"


def found(*command: str, environment: dict[str, str] | None = None, files: dict[str, str] | None = None) -> list[str]:
    places = find_places(command, environment or {}, (files or {}).get)
    return [f"{place.kind.name} {place.name} {place.servers}" for place in places]


def test_given_a_list_in_each_place_when_looked_for_then_all_are_found() -> None:
    command = (
        "spark-submit", "--master", "spark://host:7077", "--conf", f"spark.dau.bootstrap.servers={LIST}",
        "--properties-file", "spark.properties", "job.py", LIST, "--brokers", "b3:9092", "--kafka=b4:9092",
        "app.properties",
    )  # fmt: skip
    files = {
        "spark.properties": f"spark.app.kafka.bootstrap {LIST}\nspark.executor.memory 1g\n",
        "app.properties": f"# comment\nconsumer.bootstrap.servers={LIST}\nport=8080\n",
    }
    environment = {"KAFKA_BROKERS": "b5:9092", "HOME": "/root", "KAFKA_HOME": "/opt/kafka"}
    assert found(*command, environment=environment, files=files) == [
        f"CONF spark.dau.bootstrap.servers {LIST}",
        f"FILE spark.app.kafka.bootstrap {LIST}",
        f"ARGUMENT  {LIST}",
        "ARGUMENT --brokers b3:9092",
        "ARGUMENT --kafka b4:9092",
        f"FILE consumer.bootstrap.servers {LIST}",
        "VARIABLE KAFKA_BROKERS b5:9092",
    ]


def test_given_addresses_that_are_no_bootstrap_list_when_looked_for_then_spark_keeps_them() -> None:
    command = (
        "spark-submit",
        "--master",
        "spark://host:7077",
        "--conf",
        "spark.driver.host=127.0.0.1",
        "job.py",
        "12:30",
    )
    assert found(*command) == ["ARGUMENT  12:30"]  # the vetting finds that nobody of that name speaks Kafka
    assert found("spark-submit", "--conf", "spark.ui.proxy=host:8080", "job.py") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("b1:9092", True),
        ("SASL_SSL://b1:9092,SASL_SSL://b2:9092", True),
        ("[::1]:9092", True),
        ("b1", False),
        ("b1:9092,", False),
        ("http://host:80/path", False),
        ("b1:99999", False),
        ("", False),
    ],
)
def test_given_a_text_when_asked_whether_it_is_a_list_then_only_whole_lists_count(text: str, expected: bool) -> None:  # noqa: FBT001
    assert is_list(text) is expected


@pytest.mark.parametrize(
    ("command", "master", "cluster", "start"),
    [
        (("spark-submit", "job.py", "a"), "", False, 2),
        (("spark-submit", "--master", "yarn", "--deploy-mode", "cluster", "job.py"), "yarn", True, 6),
        (("spark-submit", "-v", "--conf", "spark.master=k8s://h:1", "app.jar", "x"), "k8s://h:1", False, 5),
        (("/opt/spark/bin/spark-submit", "--master=local[4]", "job.py"), "local[4]", False, 3),
        (("python", "job.py"), "", False, 1),
    ],
)
def test_given_a_command_when_read_then_its_master_and_own_arguments_are_known(
    command: tuple[str, ...],
    master: str,
    cluster: bool,  # noqa: FBT001 - a column of the table
    start: int,
) -> None:
    shape = shape_of(command)
    assert (shape.master, shape.cluster_mode, shape.arguments_from) == (master, cluster, start)


def test_given_a_properties_file_when_its_list_changes_then_all_else_stays_and_options_stand_beside_it() -> None:
    text = "# ours\nclient.bootstrap.servers=b1:9092\nclient.acks = all\nclient.reconnect.backoff.ms=7\n"
    made = replaced(
        text, {"client.bootstrap.servers": "x:1"}, {"reconnect.backoff.ms": "9", "reconnect.backoff.max.ms": "9"}
    )
    assert keys_of(made) == {
        "client.bootstrap.servers": "x:1",
        "client.reconnect.backoff.max.ms": "9",
        "client.acks": "all",
        "client.reconnect.backoff.ms": "7",
    }
    assert made.startswith("# ours\n")


def names(version: tuple[int, int], *given: str) -> list[str]:
    return [option.name for option in safe_options(version, brokers=5, given=given)]


def test_given_each_generation_of_clients_when_options_are_chosen_then_each_gets_what_it_knows() -> None:
    setup = ["socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"]
    assert names((2, 6)) == []
    assert names((2, 7)) == setup
    assert names((3, 9)) == [*setup, "metadata.recovery.strategy", "reconnect.backoff.ms", "reconnect.backoff.max.ms"]
    assert names((4, 1)) == [*setup, "metadata.recovery.rebootstrap.trigger.ms"]
    assert names(UNKNOWN) == []


def test_given_options_the_user_has_set_when_ours_are_chosen_then_their_whole_family_is_left_alone() -> None:
    chosen = names((3, 9), "reconnect.backoff.max.ms", "socket.connection.setup.timeout.ms")
    assert chosen == ["metadata.recovery.strategy"]


@pytest.mark.parametrize(
    ("words", "version"),
    [
        (("--packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"), (3, 9)),
        (("--packages", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.9.0"), (3, 9)),
        (("--packages", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.1.2"), (2, 6)),
        (("--packages", "org.apache.spark:spark-sql-kafka-0-10_2.11:2.4.8"), (2, 0)),
        (("--jars", "/x/spark-sql-kafka-0-10_2.12-3.3.1.jar,/x/kafka-clients-2.6.2.jar"), (2, 6)),
        (("job.py",), UNKNOWN),
    ],
)
def test_given_a_command_when_the_clients_version_is_looked_for_then_jars_win(
    words: tuple[str, ...], version: tuple[int, int]
) -> None:
    assert version_in(words) == version


def test_given_versions_as_they_are_written_when_parsed_then_two_numbers_remain() -> None:
    assert parse_version("3.9.1") == (3, 9)
    assert parse_version("") == UNKNOWN
    assert clients_of_spark((2, 4)) == (2, 0)
    assert clients_of_spark((2, 3)) == UNKNOWN


def vetted(*living: str, endpoint: str = "127.0.0.1:19092") -> Vetted:
    return Vetted(
        endpoint=endpoint,
        living=tuple(map(BrokerAddress.parse, living)),
        brokers=len(living),
        verdicts="b1:9092: refused",
    )


def test_given_a_local_master_when_advice_is_asked_then_it_is_the_endpoint_and_elsewhere_the_list() -> None:
    given_options = {SERVERS: "b1:9092"}
    local = advise(vetted("b3:9092", "b4:9092"), given_options, local=True, version=(3, 9))
    assert local.options[SERVERS] == "127.0.0.1:19092"
    assert local.options["kafka.metadata.recovery.strategy"] == "rebootstrap"
    cluster = advise(vetted("b3:9092", "b4:9092"), given_options, local=False, version=(2, 6))
    assert cluster.options == {SERVERS: "b3:9092,b4:9092"}


def test_given_an_endpoint_that_tls_clients_would_refuse_when_advice_is_asked_then_it_is_the_list() -> None:
    seen = advise(vetted("b3:9092", endpoint=""), {SERVERS: "b1:9092"}, local=True, version=UNKNOWN)
    assert seen.options == {SERVERS: "b3:9092"}
    assert "would not believe the endpoint's name" in seen.say[0]


def test_given_nobody_alive_when_advice_is_asked_then_the_jobs_own_list_stays() -> None:
    seen = advise(vetted(), {SERVERS: "b1:9092"}, local=False, version=(3, 9))
    assert seen.options == {}
    assert "stays as it is: nobody of b1:9092 answers" in seen.say[0]


@pytest.mark.parametrize(
    ("master", "local"), [("", True), ("local[*]", True), ("local-cluster[2,1,1024]", True), ("yarn", False)]
)
def test_given_a_master_when_asked_whether_it_is_local_then_only_this_host_counts(master: str, local: bool) -> None:  # noqa: FBT001
    assert is_local(master) is local


@pytest.mark.parametrize(
    "question", [b"garbage\n", b"{}\n", b'{"options": 3}\n', b'{"options": {"kafka.bootstrap.servers": "no list"}}\n']
)
def test_given_a_question_that_makes_no_sense_when_asked_then_the_answer_changes_nothing(
    tmp_path: Path, question: bytes
) -> None:
    vetter = ListVetter(state_dir=None)
    server = HookServer(vetter=vetter, path=tmp_path / "advice")
    server.open()
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(20)
            asked.connect(str(tmp_path / "advice"))
            asked.sendall(question)
            answer = json.loads(asked.makefile().readline())
    finally:
        server.close()
        vetter.close()
    assert answer["options"] == {}
    assert answer["say"]


def test_given_a_program_when_run_then_its_words_pass_and_the_last_are_kept(capfd: pytest.CaptureFixture[str]) -> None:
    job = Job([sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"], {})
    assert job.run() == 3
    assert {"out", "err"} <= set(job.tail.text().split())
    assert "out" in capfd.readouterr().out


def test_given_a_program_that_does_not_exist_when_run_then_one_line_says_so() -> None:
    with pytest.raises(ConfigError, match="no-such-program: cannot be run: No such file"):
        Job(["no-such-program"], {}).run()


def test_given_a_report_when_it_ends_then_shells_see_what_it_was() -> None:
    ended = Attempt(began_wall=0, seconds=1, servers="", exit_code=0)
    assert Report(outcome=Outcome.FINISHED, attempts=(ended,)).exit_code == 0
    codes = {
        Failure.DEAD_LIST: 3,
        Failure.LEADERLESS: 3,
        Failure.AUTHENTICATION: 5,
        Failure.WRONG_CLUSTER: 6,
        Failure.DATA_LOSS: 7,
        Failure.CODE: 42,
    }
    for failure, code in codes.items():
        text = next(text for kind, text in SEEN if kind is failure)
        attempt = replace(ended, exit_code=42, finding=classify(text))
        report = Report(outcome=Outcome.FATAL, attempts=(attempt,), reason="because")
        assert (report.exit_code, report.failures) == (code, 1)
        assert report.lines()[0] == "failed for good: 1 run, 1 failed; because"
        assert json.loads(json.dumps(report.document()))["attempts"][0]["finding"]["failure"] == failure.value
    killed = replace(ended, exit_code=-15)
    assert Report(outcome=Outcome.STOPPED, attempts=(killed,)).exit_code == 143


def test_given_runs_that_failed_when_a_restart_is_weighed_then_five_slow_starts_in_a_row_are_no_busy_machine() -> None:
    def run(failure: Failure) -> Attempt:
        return Attempt(began_wall=0, seconds=1, servers="", finding=Finding(failure=failure, evidence="", remedy=""))

    slow, dead = run(Failure.SLOW_START), run(Failure.DEAD_LIST)
    assert worth_a_restart([slow] * 4)
    assert worth_a_restart([slow, slow, slow, slow, dead])
    assert worth_a_restart([slow, dead, slow, slow, slow, slow])
    assert not worth_a_restart([dead, *[slow] * 5])
    assert not worth_a_restart([dead, run(Failure.CODE)])


def test_given_a_folder_too_deep_for_a_socket_when_opened_then_one_line_names_the_remedy(tmp_path: Path) -> None:
    server = HookServer(vetter=ListVetter(state_dir=None), path=tmp_path / ("deep" * 40))
    with pytest.raises(ConfigError, match=r"TMPDIR: no socket can be made .* name a shorter folder"):
        server.open()
