"""Every route of the description, fed with what fits it and with what does not: no crash, no answer out of place.

`FUZZ_EXAMPLES` says how many requests per route and mode; `make fuzz` asks for thousands.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from discovery.localkafka.keeper.processes import resident_bytes
from docs.generate import openapi
from tests.support.service import ServiceProcess

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "5"))
BRIEF = "20ms"
"""What stands for every longer wait: the fuzzer is not here to wait."""
NAMES = {"cluster": "main", "topic": "t0"}
CHECKS = (status_code_conformance, content_type_conformance, response_schema_conformance)
SCHEMA = schemathesis.openapi.from_dict(json.loads(openapi.page()))
OPERATIONS = {one.label: one for found in SCHEMA.get_all_operations() if isinstance(found, Ok) and (one := found.ok())}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """A service over a cluster in memory, everything else real; no bug is reported, its memory stays small."""
    folder = tmp_path_factory.mktemp("fuzz")
    arguments = (str(folder / "state"), "0", "3")
    with ServiceProcess(*arguments, log=folder / "log", program=("-m", "tests.support.fakes.service_main")) as one:
        while one.get("/v1/status").status_code == 503:
            pass
        yield one
        resident = resident_bytes(one.pid)
        assert one.stop()[0] == 0
    assert "BUG in" not in (folder / "log").read_text()
    assert resident is not None
    assert resident < 150_000_000


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("label", OPERATIONS)
def test_given_any_request_when_sent_then_the_answer_is_one_the_description_names(
    service: ServiceProcess, label: str, mode: GenerationMode
) -> None:
    operation = OPERATIONS[label]
    with ExitStack() as stack:
        session = stack.enter_context(requests.Session())
        session.trust_env = False

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            derandomize=EXAMPLES < 100,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode), known=st.integers(0, 3).map(bool))
        def send(case: Any, *, known: bool) -> None:
            if known:  # else hardly a request came past the names
                case.path_parameters.update(
                    {name: text for name, text in NAMES.items() if name in case.path_parameters}
                )
            for name in {"wait", "timeout"} & set(case.query or ()):
                case.query[name] = BRIEF
            case.headers = {name: text for name, text in (case.headers or {}).items() if name.lower() != "host"}
            if "wait" in {p["name"] for p in operation.definition.raw.get("parameters", ())}:
                case.query = {**(case.query or {}), "wait": BRIEF}
            response = case.call(base_url=service.api, session=session, timeout=30)
            case.validate_response(response, checks=CHECKS)

        with suppress(Unsatisfiable):  # a route without input cannot be fed wrongly
            send()


def test_given_the_fuzzed_service_when_asked_then_it_still_answers(service: ServiceProcess) -> None:
    assert service.get("/v1/status").status_code == 200
    assert service.probe("/livez").status_code == 200
