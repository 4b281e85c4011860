"""Options that several commands share, and a way to write a whole set of them once."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

import typer

from discovery.config.option_values import path_of


def state_folder(text: str) -> Path:
    """Read `--state-dir`. Raises ConfigError where it is no path of this machine."""
    return path_of("--state-dir", text)


AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this the command only says what it would do.")]
StateFolder = Annotated[
    Path | None,
    typer.Option("--state-dir", parser=state_folder, help="State folder; the user's by default."),
]
KafkaTimeout = Annotated[float, typer.Option("--timeout", min=1, max=600, help="Seconds to wait for Kafka.")]
ClientOption = Annotated[
    list[str] | None,
    typer.Option("--client-option", help="kafka.NAME=VALUE, or kafka.NAME=@FILE for a secret; may be repeated."),
]

Own = ParamSpec("Own")
Shared = TypeVar("Shared")


def together(shared: type[Shared]) -> Callable[[Callable[Concatenate[Shared, Own], None]], Callable[..., None]]:
    """Let a command take every field of a dataclass as an option, and hand them over as one value.

    Typer reads signatures, and knows no set of options that commands have in common: so this writes the signature. The
    fields' types are what Typer takes, `Annotated`, and their defaults are the options'.

    Args:
        shared: A keyword-only dataclass; no field may have the name of one of the command's own options.

    Returns:
        What makes, of a command whose first argument is that dataclass, the function to give to Typer.

    Runs: once per command, on import.
    """
    made: Callable[..., Shared] = shared
    hints = get_type_hints(shared, include_extras=True)
    given = inspect.signature(made).parameters

    def wrap(command: Callable[Concatenate[Shared, Own], None]) -> Callable[..., None]:
        untyped: Callable[..., None] = command

        def run(**values: Any) -> None:
            untyped(made(**{name: values.pop(name) for name in given}), **values)

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        options = [given[name].replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY) for name in given]
        options += [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        flagged: Any = functools.update_wrapper(run, command)
        del flagged.__wrapped__  # Typer would look through to the command
        flagged.__signature__ = inspect.Signature(options)
        flagged.__annotations__ = {one.name: one.annotation for one in options}
        return run

    return wrap
