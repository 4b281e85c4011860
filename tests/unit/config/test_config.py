"""Layers, their order, their origins; what is refused and how that is said."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery.cli.app import app
from discovery.config.durations import seconds
from discovery.config.layers import Where
from discovery.config.provenance import Effective, load
from discovery.core.errors import ConfigError
from docs.generate import configuration as reference

ONE = '[clusters.main]\nbootstrap_servers = ["b1:9092", "b2:9092"]\n'
SECRET = "topsecret"  # noqa: S105 - the point
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{SECRET}";'


def _load(
    tmp_path: Path,
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
    options: Mapping[Where, tuple[str, object]] | None = None,
) -> Effective:
    config = None
    if text is not None:
        config = tmp_path / "config.toml"
        config.write_text(text, encoding="utf-8")
    return load(config=config, environment=environment or {}, options=options or {})


def test_given_all_layers_when_loaded_then_the_later_wins_and_each_value_names_its_origin(tmp_path: Path) -> None:
    effective = _load(
        tmp_path,
        "[api]\nport = 1000\nwaiters_max = 7\n[probes]\nport = 1001\n" + ONE,
        {"KAFKA_DISCOVERY_API__PORT": "2000", "KAFKA_DISCOVERY_PROBES__PORT": "2001"},
        {("api", "port"): ("--port", 3000), ("api", "host"): ("--host", None)},
    )
    settings = effective.settings
    assert (settings.api.port, settings.probes.port, settings.api.waiters_max) == (3000, 2001, 7)
    origins = {name: origin for name, _, origin in effective.rows()}
    assert origins["api.port"] == "command line --port"
    assert origins["probes.port"] == "environment KAFKA_DISCOVERY_PROBES__PORT"
    assert origins["api.waiters_max"] == f"file {tmp_path / 'config.toml'}"
    assert origins["api.host"] == "default"


def test_given_several_clusters_when_loaded_then_each_has_its_own_loop_over_the_common_one(tmp_path: Path) -> None:
    text = '[loop]\ninterval_seconds = "2s"\n[clusters.a]\nbootstrap_servers = "h1:1"\n'
    text += '[clusters.b]\nbootstrap_servers = "h2:1"\n'
    settings = _load(tmp_path, text + "loop.interval_seconds = 3\nloop.max_stuck_calls = 4\n").settings
    assert (settings.policy("a").interval_seconds, settings.policy("b").interval_seconds) == (2.0, 3.0)
    assert settings.policy("b").max_stuck_calls == 4


def test_given_a_cluster_by_environment_when_loaded_then_names_and_client_options_are_found(tmp_path: Path) -> None:
    (tmp_path / "jaas").write_text(JAAS + "\n", encoding="utf-8")
    prefix = "KAFKA_DISCOVERY_CLUSTERS__MAIN__"
    effective = _load(
        tmp_path,
        environment={
            f"{prefix}BOOTSTRAP_SERVERS": "b1:9092,b2:9092",
            f"{prefix}CLIENT__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            f"{prefix}CLIENT__SASL_MECHANISM": "PLAIN",
            f"{prefix}CLIENT__SASL_JAAS_CONFIG_FILE": str(tmp_path / "jaas"),
            f"{prefix}LOOP__INTERVAL_SECONDS": "5s",
        },
    )
    cluster = effective.settings.clusters["main"]
    assert [str(address) for address in cluster.bootstrap_servers] == ["b1:9092", "b2:9092"]
    assert cluster.client_options.librdkafka["sasl.password"] == SECRET
    assert effective.settings.policy("main").interval_seconds == 5.0


@pytest.mark.parametrize(
    ("layers", "cluster"), [((None, "b1:1"), "default"), ((ONE, "b9:1"), "main")], ids=["alone", "over a file"]
)
def test_given_a_short_bootstrap_list_when_loaded_then_it_means_the_only_cluster(
    tmp_path: Path, layers: tuple[str | None, str], cluster: str
) -> None:
    settings = _load(tmp_path, layers[0], {"KAFKA_DISCOVERY_BOOTSTRAP_SERVERS": layers[1]}).settings
    assert [str(a) for a in settings.clusters[cluster].bootstrap_servers] == [layers[1]]
    assert list(settings.clusters) == [cluster]


def test_given_foreign_variables_as_kubernetes_injects_them_when_loaded_then_they_are_ignored_by_name(
    tmp_path: Path,
) -> None:
    foreign = {"KAFKA_DISCOVERY_PORT": "tcp://10.0.0.1:9463", "KAFKA_DISCOVERY_SERVICE_HOST": "10.0.0.1"}
    assert _load(tmp_path, ONE, {**foreign, "PATH": "x"}).ignored == tuple(sorted(foreign))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[api]\nprot = 1\n" + ONE, "api.prot ({file}): unknown setting; did you mean api.port?"),
        ("[clusters.a]\nbootstrap = 1\n", "did you mean clusters.a.bootstrap_servers?"),
        ("colour = 1\n" + ONE, "colour ({file}): unknown setting"),
        ("[api]\nport = 70000\n" + ONE, "api.port ({file}): 70000: it must be less than or equal to 65535"),
        ("[api]\nhost = '0.0.0.0'\n" + ONE, "is not a loopback address, so a token is required; set api.token_file"),
        ("[api]\nhost = 'example.org'\n" + ONE, "is not a loopback address"),
        ("[api]\ntls_key_file = 'k'\n" + ONE, "belong together"),
        ("[api]\nwaiters_max = 12000\n" + ONE, "need waiters_max < connections_max"),
        ("[api]\nport = 1\n[probes]\nport = 1\n" + ONE, "api.port and probes.port are both 1"),
        ("", "clusters: none is given; set --bootstrap"),
        ("[clusters.a]\ntopics = ['t']\n", "clusters.a.bootstrap_servers: it is missing"),
        ("[clusters.a]\nbootstrap_servers = 'h'\n", "'h' is not an address"),
        ("[clusters.a]\nbootstrap_servers = 5\n", "it must be a valid list"),
        ("[clusters.'a b']\nbootstrap_servers = 'h:1'\n", "choose another"),
        ("[clusters.default]\nbootstrap_servers = 'h:1'\n" + ONE, "this name means the only cluster"),
        ("[clusters.a]\nbootstrap_servers = 'h:1'\ntopics = ['t']\ntopic_pattern = 'p'\n", "exclude each other"),
        ("[clusters.a]\nbootstrap_servers = 'h:1'\ntopic_pattern = '('\n", "is not a regular expression"),
        (
            "[clusters.a]\nbootstrap_servers = 'h:1'\nloop.api_timeout_seconds = 1\n",
            "request_timeout_seconds < api_tim",
        ),
        ("[loop]\nintervall = 1\n" + ONE, "loop.intervall: unknown setting; known are"),
        ("[loop]\ninterval_seconds = 'soon'\n" + ONE, "loop.interval_seconds: 'soon': a duration is"),
        ("silence_seconds = 'soon'\n" + ONE, "silence_seconds ({file}): 'soon': a duration is"),
        ("state_dir = 's3a://b/s'\n" + ONE, "state_dir ({file}): 's3a://b/s': no path of this machine; name a local"),
        ("api = 3\n" + ONE, "api ({file}): 3: it must be a valid table"),
        ("a = [", "is not TOML"),
        (ONE + "client.'security.protocl' = 'SSL'\n", "did you mean kafka.security.protocol?"),
        (ONE + "client.'sasl.jaas.config_file' = '/not/there'\n", "/not/there cannot be read: No such file"),
        (ONE + "client.'a' = '1'\nclient.'a_file' = '2'\n", "is given twice, as a value and as a file"),
    ],
)
def test_given_a_mistake_when_loaded_then_one_line_names_it_and_the_remedy(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, text)
    assert said.format(file=f"file {tmp_path / 'config.toml'}") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_given_two_clusters_when_a_short_list_is_typed_then_it_asks_which(tmp_path: Path) -> None:
    text = ONE + "[clusters.other]\nbootstrap_servers = 'h:1'\n"
    with pytest.raises(ConfigError, match="which of main, other"):
        _load(tmp_path, text, options={("bootstrap_servers",): ("--bootstrap", "b:1")})


@pytest.mark.parametrize("wrong", ["", "client.'sasl.mechanism' = 'PLANE'\n", "client.'sasl.jaas.config' = 5\n"])
def test_given_a_secret_when_printed_or_refused_then_it_is_nowhere_in_the_output(tmp_path: Path, wrong: str) -> None:
    config = tmp_path / "config.toml"
    lines = "client.'security.protocol' = 'SASL_SSL'\n" + (wrong or "client.'sasl.mechanism' = 'PLAIN'\n")
    jaas = "" if "jaas" in wrong else f"client.'sasl.jaas.config' = '''{JAAS}'''\n"
    config.write_text(ONE + lines + jaas + f"client.'ssl.key.password' = '{SECRET}'\n", encoding="utf-8")
    for command in (["print"], ["print", "--json"], ["check"]):
        result = CliRunner().invoke(app, ["config", *command, "--config", str(config)])
        assert SECRET not in result.output + str(result.exception)
        assert (result.exit_code == 0) == (wrong == "")


@pytest.mark.parametrize(
    ("text", "expected"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h", 3600), (2, 2), ("2.5", 2.5)]
)
def test_given_a_duration_when_read_then_it_is_in_seconds(text: object, expected: float) -> None:
    assert seconds(text) == expected


def test_given_the_settings_when_their_page_is_written_then_it_is_the_page_in_the_docs() -> None:
    written = reference.PAGE.read_text(encoding="utf-8")
    assert written == reference.page(), "run python -m docs.generate.configuration"
