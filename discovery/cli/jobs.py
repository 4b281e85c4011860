"""`kafka-discovery jobs`: where the ready jobs lie, for `spark-submit`."""

import json
from typing import Annotated

import typer

from discovery.spark.jobs.files import JOBS, job_file


def jobs(
    name: Annotated[str | None, typer.Argument(help="One job: prints its path alone.")] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the files of the ready jobs: spark-submit $(kafka-discovery jobs dau) --help."""
    if name is not None:
        path = str(job_file(name))
        typer.echo(json.dumps({"path": path}) if as_json else path)
    elif as_json:
        typer.echo(json.dumps([{"name": job, "what": what, "path": str(job_file(job))} for job, what in JOBS.items()]))
    else:
        for job, what in JOBS.items():
            typer.echo(f"{job:<12}{what}: {job_file(job)}")
