"""The page of all settings, written from the code. `python -m docs.generate.configuration` renews it."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from discovery.config.settings import ClusterSettings, Settings
from discovery.core.policy import Policy

PAGE = Path("docs/reference/configuration.md")
_HEAD = """# Configuration of the service

<!-- Written by `python -m docs.generate.configuration`; do not edit. -->

Defaults < file (`--config FILE`, TOML) < environment < command line; the later wins, setting by setting.
`kafka-discovery config print` shows each value in force and where it came from, `config check` says what is wrong.
Unknown names in the file are errors; unknown environment variables are ignored, for Kubernetes injects such.
Durations are seconds, or text such as `"500ms"`, `"30s"`, `"5m"`.

"""
_CLIENT = """
Client options keep their JVM names: in the file `[clusters.main.client]` with `"security.protocol" = "SASL_SSL"`, in
the environment `KAFKA_DISCOVERY_CLUSTERS__MAIN__CLIENT__SECURITY_PROTOCOL`. A name that ends in `_file`
(`"sasl.jaas.config_file"`, `…__CLIENT__SASL_JAAS_CONFIG_FILE`) names a file that holds the value, so that no secret
stands in a configuration or in an environment.

## `[loop]`, and `[clusters.<name>.loop]` where one cluster differs

| name | default |
|---|---|
"""


def page() -> str:
    """Return the page.

    Runs: anywhere (pure).
    """
    rows = [_row(name, field, env) for name, field, env in _settings(Settings, "", "KAFKA_DISCOVERY_")]
    rows += [
        _row(name, field, env)
        for name, field, env in _settings(ClusterSettings, "clusters.<name>.", "KAFKA_DISCOVERY_CLUSTERS__<NAME>__")
    ]
    table = "| name | environment | default | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    loop = "".join(f"| `{field.name}` | {field.default:g} |\n" for field in fields(Policy))
    return _HEAD + table + _CLIENT + loop


def _settings(model: type[BaseModel], prefix: str, env: str) -> Iterator[tuple[str, FieldInfo, str]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _settings(inner, f"{prefix}{name}.", f"{env}{name.upper()}__")
        elif name not in {"clusters", "loop", "client"}:
            yield f"{prefix}{name}", field, f"{env}{name.upper()}"


def _row(name: str, field: FieldInfo, env: str) -> str:
    default = "required" if field.is_required() else field.get_default(call_default_factory=True)
    shown = "" if default in (None, ()) else f"{default:g}" if isinstance(default, float) else str(default)
    return f"| `{name}` | `{env}` | {shown} | {field.description} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
