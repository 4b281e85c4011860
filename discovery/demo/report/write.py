"""Writes report.json, report.html and timeline.svg; the page needs nothing but itself."""

import json
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from discovery.demo.follow import Batch
from discovery.demo.play import Outcome
from discovery.demo.recording import BrokerState
from discovery.demo.report import story, timeline
from discovery.demo.report.outcome import Figures, Goal

REPORT_NAMES = ("report.json", "report.html", "timeline.svg")


def write_report(outcome: Outcome, batches: Sequence[Batch], folder: Path) -> None:
    """Write the three files, replacing those of an earlier demo.

    Raises:
        OSError: the folder cannot be written.

    Runs: main thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    picture = timeline.draw(outcome.recording.samples, outcome.recording.marks, batches)
    contents = (json.dumps(to_json(outcome), indent=2) + "\n", to_html(outcome, picture), picture + "\n")
    for name, text in zip(REPORT_NAMES, contents, strict=True):
        (folder / name).write_text(text, encoding="utf-8")


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return the report as plain values: the headline figures first, everything recorded after them."""
    figures, recording = outcome.figures, outcome.recording
    audit = figures.audit
    begin = recording.samples[0].wall if recording.samples else 0.0
    return {
        "ok": outcome.ok,
        "failure": outcome.failure,
        "events_produced": audit.events_produced if audit else None,
        "events_counted": audit.events_counted if audit else None,
        "duplicates": audit.duplicates if audit else None,
        "lost": audit.lost if audit else None,
        "checksum_mismatches": audit.checksum_mismatches if audit else None,
        "dead_letters_expected": audit.dead_letters_expected if audit else None,
        "dead_letters_found": audit.dead_letters_found if audit else None,
        **{name: value for name, value in asdict(figures).items() if name not in {"audit", "single_audit"}},
        "single": asdict(figures.single_audit) if figures.single_audit else None,
        "settings": asdict(outcome.settings),
        "goals": [asdict(goal) for goal in outcome.goals],
        "events": [
            {"second": round(mark.wall - begin, 3), "kind": mark.moment.value, "text": mark.text}
            for mark in recording.marks
        ],
        "timeline": [
            {
                "second": round(sample.wall - begin, 2),
                "rows_per_second": sample.rows_per_second,
                "lag": sample.lag,
                "partitions": sample.partitions,
                **{f"brokers_{state.value}": sample.count(state) for state in BrokerState},
            }
            for sample in recording.samples
        ],
    }


def to_html(outcome: Outcome, picture: str) -> str:
    """Return the page."""
    figures = outcome.figures
    template = Template(files("discovery.demo.report").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(
        headline=escape(story.headline(figures, outcome.broken, outcome.failure)),
        verdict=_verdict(outcome),
        verdict_class="good" if outcome.ok else "bad",
        lead=escape(story.lead(figures, outcome.failure)),
        tiles="".join(_tile(value, text) for value, text in _tiles(figures)),
        timeline=picture,
        story="".join(f"<li><b>{escape(t)}</b>{escape(text)}</li>" for t, text in story.chapters(figures)),
        days=_rows((day, f"{users:,}", f"{events:,}") for day, users, events in figures.daily_users),
        goals="".join(
            f'<tr><td class="{"yes" if g.met else "no" if g in outcome.broken else "note"}">{sign(outcome, g)}</td>'
            f"<td>{escape(g.promise)}</td><td>{escape(measured(outcome, g))}</td></tr>"
            for g in outcome.goals
        ),
        log=_log(outcome),
        machine=escape(
            f"{figures.brokers} brokers, a generator and Spark on one machine: {story.machine(figures)} (so many"
            " processes ran or waited for a core on average)"
        ),
        made=escape(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, Python {platform.python_version()}"),
    )


def sign(outcome: Outcome, goal: Goal) -> str:
    """Mark a goal: kept, broken, or only later than planned."""
    return "✓" if goal.met else "✗" if goal in outcome.broken else "~"


def measured(outcome: Outcome, goal: Goal) -> str:
    """Say what was measured; a time that was missed, beside the machine."""
    return f"{goal.measured} ({story.machine(outcome.figures)})" if goal.timed and not goal.met else goal.measured


def _verdict(outcome: Outcome) -> str:
    if not outcome.ok:
        return "not all promises kept"
    return "all promises kept, some later than planned" if outcome.late else "all promises kept"


def _tiles(figures: Figures) -> Iterable[tuple[str, str]]:
    audit = figures.audit
    if audit is not None:
        yield f"{audit.events_counted:,}", f"of {audit.events_produced:,} events counted"
        yield f"{audit.lost:,}", "events lost"
        yield f"{audit.duplicates:,}", "events counted twice"
        yield (
            f"{audit.dead_letters_found:,}",
            f"of {audit.dead_letters_expected:,} malformed records became dead letters",
        )
    yield f"{figures.query_restarts}", "restarts besides the deliberate one"
    for value, text in (
        (figures.kill_gap_seconds, f"longest pause after {figures.brokers_killed} brokers died"),
        (figures.new_partition_seconds_p99, "until a new partition was read"),
        (figures.dead_list_restart_seconds, "to start on a list of dead brokers"),
    ):
        yield "-" if value is None else f"{value:.1f} s", text


def _tile(value: str, text: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(text)}</span></div>'


def _rows(rows: Iterable[tuple[str, str, str]]) -> str:
    return "".join(f'<tr><td>{escape(a)}</td><td class="n">{b}</td><td class="n">{c}</td></tr>' for a, b, c in rows)


def _log(outcome: Outcome) -> str:
    samples, marks = outcome.recording.samples, outcome.recording.marks
    begin = samples[0].wall if samples else 0.0
    return "".join(
        f'<tr><td class="n">{max(0.0, mark.wall - begin):.1f} s</td><td>{escape(mark.text)}</td></tr>' for mark in marks
    )
