"""What the user sees while it plays: a live picture on a terminal, plain lines anywhere else."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from discovery.core.plural import counted
from discovery.demo.recording import BrokerState, Mark, Moment, Sample
from discovery.demo.settings import RACKS, DemoSettings

_LINES = 10
_PLAIN_SECONDS = 5.0
_SIGNS = {
    BrokerState.ALIVE: ("●", "green"),
    BrokerState.FROZEN: ("❄", "cyan"),
    BrokerState.DEAD: ("✖", "bold red"),
}
_STYLES = {
    Moment.KILLED: "bold red",
    Moment.FROZEN: "cyan",
    Moment.RESTARTED: "bold yellow",
    Moment.PARTITIONS: "bold magenta",
    Moment.RETURNED: "bold green",
}


class View(Protocol):
    """Where the scenario tells what it does. Thread-safe; never blocks for long."""

    def begin(self, title: str, planned_seconds: float) -> None:
        """A step begins."""
        ...

    def say(self, mark: Mark) -> None:
        """Something happened."""
        ...

    def show(self, sample: Sample) -> None:
        """This is how it stands."""
        ...


class PlainView:
    """One line per event, one line of figures every five seconds: for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._shown = 0.0

    def begin(self, title: str, planned_seconds: float) -> None:
        """See `View.begin`."""
        self._line(f"== {title} (about {planned_seconds:.0f} s)")

    def say(self, mark: Mark) -> None:
        """See `View.say`."""
        self._line(mark.text)

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        if time.monotonic() - self._shown >= _PLAIN_SECONDS:
            self._shown = time.monotonic()
            self._line(figures(sample))

    def _line(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"{elapsed:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True)


class LiveView:
    """Racks, figures, the step with its countdown, and the last events, redrawn four times a second."""

    def __init__(self, settings: DemoSettings, console: Console) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._events: deque[tuple[float, Mark]] = deque(maxlen=_LINES)
        self._sample = Sample(wall=0.0)
        self._title, self._planned, self._since = "Start the brokers", 40.0, time.monotonic()
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        """Take over the terminal."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._live.stop()

    def begin(self, title: str, planned_seconds: float) -> None:
        """See `View.begin`."""
        with self._lock:
            self._title, self._planned, self._since = title, planned_seconds, time.monotonic()

    def say(self, mark: Mark) -> None:
        """See `View.say`."""
        with self._lock:
            self._events.append((time.monotonic() - self._began, mark))

    def show(self, sample: Sample) -> None:
        """See `View.show`."""
        with self._lock:
            self._sample = sample

    def _render(self) -> RenderableType:
        with self._lock:
            events, sample = tuple(self._events), self._sample
            title, planned, since = self._title, self._planned, self._since
        elapsed, total = time.monotonic() - since, time.monotonic() - self._began
        head = Table.grid(expand=True)
        head.add_column(ratio=1)
        head.add_column(justify="right")
        head.add_row(Text(title, style="bold"), f"{_countdown(planned - elapsed)}   {_clock(total)}")
        bar = ProgressBar(total=planned, completed=min(planned, elapsed))
        body = Table.grid(padding=(0, 6))
        body.add_row(racks(self._settings, sample), _table(sample))
        log = Group(*(Text(f"{_clock(at)}  {mark.text}", style=_STYLES.get(mark.moment, "")) for at, mark in events))
        inside = Group(head, bar, Text(), body, Text(), log)
        return Panel(inside, title="kafka-discovery demo", border_style="blue")


@contextlib.contextmanager
def open_view(settings: DemoSettings, console: Console) -> Iterator[View]:
    """Choose the live picture where there is a terminal, plain lines elsewhere."""
    if console.is_terminal:
        with LiveView(settings, console) as live:
            yield live
    else:
        yield PlainView(console)


def racks(settings: DemoSettings, sample: Sample) -> RenderableType:
    """Draw one line per rack: the brokers, and how they are."""
    table = Table(title="brokers", title_justify="left", box=None, show_header=False)
    for rack in range(RACKS):
        line = Text()
        for broker_id in settings.rack_members(rack):
            sign, style = _SIGNS[sample.brokers.get(broker_id, BrokerState.DEAD)] if sample.brokers else ("·", "dim")
            line.append(f" {sign} {broker_id:<3}", style=style)
        table.add_row(f"rack {rack + 1}", line)
    return table


def figures(sample: Sample) -> str:
    """Say a sample in one line."""
    brokers = ", ".join(f"{sample.count(state)} {state.value}" for state in BrokerState if sample.count(state))
    return (
        f"{sample.rows_per_second:6.0f} rows/s, lag {sample.lag}, {sample.counted} of {sample.produced} records"
        f" counted, {counted(sample.partitions, 'partition')} read, brokers: {brokers}"
    )


def _table(sample: Sample) -> Table:
    table = Table(title="job", title_justify="left", box=None, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("rows per second", f"{sample.rows_per_second:,.0f}")
    table.add_row("records counted", f"{sample.counted:,}")
    table.add_row("not yet counted", f"{sample.lag:,}")
    table.add_row("partitions read", f"{sample.partitions}")
    return table


def _countdown(left: float) -> str:
    return f"{left:.0f} s left" if left > 0 else "any moment"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"
