"""The demo in sentences a manager can read, with the measured numbers in them. Pure."""

from collections.abc import Sequence

from discovery.core.plural import counted
from discovery.demo.report.outcome import BROKER_SESSION_SECONDS, Figures, Goal

_NOTABLE_SECONDS = 0.5
_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def headline(figures: Figures, broken: Sequence[Goal], failure: str | None) -> str:
    """Say the whole in one line."""
    if failure is not None:
        return "The demo did not reach its end"
    if broken:
        verb = "promise was" if len(broken) == 1 else "promises were"
        return f"{number(len(broken)).capitalize()} {verb} not kept"
    killed, all_brokers = number(figures.brokers_killed).capitalize(), number(figures.brokers)
    return f"{killed} of {all_brokers} brokers died, and the count is exact"


def machine(figures: Figures) -> str:
    """Say on what it ran: a time means nothing without it."""
    return f"{counted(figures.cores, 'core')}, load {figures.load_average:.0f}"


def lead(figures: Figures, failure: str | None) -> str:
    """Say what it means, in a sentence or two."""
    if failure is not None:
        return failure
    audit = figures.audit
    if audit is None:
        return "Nothing could be compared."
    return (
        f"A Spark job counted the daily active users of {audit.events_produced:,} events while its Kafka cluster lost a"
        f" whole rack. It counted {audit.events_counted:,} of them: {nothing(audit.lost)} lost,"
        f" {nothing(audit.duplicates)} counted twice. {_restarts(figures.query_restarts)}"
    )


def _restarts(restarts: int) -> str:
    if not restarts:
        return "It was never restarted but once, on purpose."
    return f"It was restarted {number(restarts)} more {'time' if restarts == 1 else 'times'} than planned."


def chapters(figures: Figures) -> list[tuple[str, str]]:
    """Tell each step: (title, text); steps that were not reached are left out."""
    chapters = [
        ("All is well", _start(figures)),
        (f"The topic grows to {figures.partitions_after} partitions", _partitions(figures)),
        (f"{number(figures.brokers_killed).capitalize()} brokers die at once", _kill(figures)),
        ("Two brokers freeze", _freeze(figures)),
        ("The job is restarted on a list of dead brokers", _restart(figures)),
        ("A topic with one replica", _single(figures)),
        ("Malformed records", _dead_letters(figures)),
    ]
    return [(title, text) for title, text in chapters if text]


def _start(figures: Figures) -> str:
    if figures.first_start_seconds is None:
        return ""
    return (
        f"The job started with all {figures.brokers} brokers in its list. Its first result was there after"
        f" {seconds(figures.first_start_seconds)}, most of which is Spark itself starting."
    )


def _partitions(figures: Figures) -> str:
    if figures.new_partition_seconds_p99 is None or figures.new_partition_seconds_p50 is None:
        return ""
    added = number(figures.partitions_after - figures.partitions_before).capitalize()
    median, slowest = seconds(figures.new_partition_seconds_p50), seconds(figures.new_partition_seconds_p99)
    return (
        f"{added} partitions were added while the job ran. It was not restarted: the first events of the new partitions"
        f" were counted {median} after Kafka had accepted them (median), the slowest after {slowest}."
    )


def _kill(figures: Figures) -> str:
    if figures.kill_gap_seconds is None:
        return ""
    slowest, overall = figures.kill_gap_partition_seconds, figures.kill_gap_seconds
    apart = (
        f" The partition that waited longest for its new leader stood still for {seconds(slowest)}, and the others did"
        " not wait for it."
        if slowest is not None and slowest > overall + _NOTABLE_SECONDS
        else ""
    )
    session = seconds(BROKER_SESSION_SECONDS)
    return (
        "A whole rack was killed without warning. The job was not restarted: the longest time without a result was"
        f" {seconds(overall)}, of which Kafka itself takes up to {session} to notice a dead broker and choose new"
        f" leaders.{apart}"
    )


def _freeze(figures: Figures) -> str:
    if figures.freeze_gap_seconds is None:
        return ""
    return (
        "Then two more brokers of the list froze: they accepted connections and answered nothing, which is harder to"
        f" notice than death. The longest time without a result was {seconds(figures.freeze_gap_seconds)}; nothing was"
        " restarted."
    )


def _restart(figures: Figures) -> str:
    if figures.dead_list_restart_seconds is None or figures.first_start_seconds is None:
        return ""
    took, usual = seconds(figures.dead_list_restart_seconds), seconds(figures.first_start_seconds)
    return (
        f"The job was stopped on purpose and started again with a list that named only the {figures.brokers_killed}"
        " dead brokers: the situation that once kept a job restarting for over an hour. It remembered the living ones"
        f" and had its first result after {took}; the very first start, with every broker alive, took {usual}."
    )


def _single(figures: Figures) -> str:
    if figures.single_flowing_seconds is None:
        return ""
    dead, named = len(figures.single_leaderless), listed(figures.single_named) or "none"
    back = ""
    if figures.single_returned_seconds is not None:
        later = seconds(figures.single_returned_seconds)
        back = f" When the brokers were back, what had been left out was counted too, {later} later."
    return (
        f"A second job read a topic without replicas; {number(dead)} of its {figures.single_partitions} partitions had"
        f" lost their only broker. The others were counted to the end within {seconds(figures.single_flowing_seconds)}"
        f" of its start, and the job named the ones it could not read: {named}.{back}"
    )


def _dead_letters(figures: Figures) -> str:
    if figures.audit is None:
        return ""
    audit = figures.audit
    return (
        f"{audit.dead_letters_expected:,} records were broken on purpose: no JSON, a missing field, an impossible time."
        f" {audit.dead_letters_found:,} became dead letters with their reason and offset, and the job went on."
    )


def number(value: int) -> str:
    """Write small numbers as words."""
    return _WORDS[value] if 0 <= value < len(_WORDS) else f"{value:,}"


def nothing(value: int) -> str:
    """Write a count, none as a word."""
    return f"{value:,}" if value else "none"


def listed(numbers: Sequence[int]) -> str:
    """Write 1, 2 and 3; nothing for nothing."""
    texts = [str(value) for value in numbers]
    return " and ".join((", ".join(texts[:-1]), texts[-1])) if len(texts) > 1 else "".join(texts)


def seconds(value: float) -> str:
    """Write a duration for people."""
    return f"{value:.1f} seconds" if value >= 1 else f"{value:.2f} seconds"
