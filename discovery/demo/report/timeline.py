"""The timeline picture: rows per second, lag, brokers and partitions over one demo, with the events marked. Pure.

Plain SVG with classes, light and dark, no script and nothing loaded from elsewhere.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from discovery.demo.follow import Batch
from discovery.demo.recording import BrokerState, Mark, Moment, Sample

WIDTH = 1000
_LEFT, _RIGHT = 70, 20
_LABELS_TOP, _LABEL_ROW = 16, 17
_PANEL_GAP = 34
_CHARACTER = 7.6
"""Width of a character of a label; the labels are set so that none covers another."""
_LEAD_SECONDS = 8.0
_OUTLIERS = 3
"""So many seconds of catching up may reach beyond the upper edge."""
_GRAVE = (Moment.KILLED, Moment.FROZEN, Moment.STOPPED)

STYLE = """
.kd-bg{fill:#ffffff}.kd-frame{fill:#f6f8fa}.kd-grid{stroke:#d8dee4;stroke-width:1}
.kd-text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#57606a}
.kd-title{font-weight:600;fill:#24292f;stroke:#ffffff;stroke-width:5px;paint-order:stroke}
.kd-rows{fill:#2f6fde;fill-opacity:.85}.kd-lag{fill:#b7791f;fill-opacity:.75}
.kd-alive{fill:#2da44e;fill-opacity:.8}.kd-frozen{fill:#54aeff;fill-opacity:.9}.kd-dead{fill:#cf222e;fill-opacity:.85}
.kd-parts{fill:none;stroke:#8250df;stroke-width:2.5}
.kd-mark{stroke:#57606a;stroke-width:1;stroke-dasharray:3 3}.kd-mark-grave{stroke:#cf222e;stroke-width:1.2}
.kd-label{font:600 11.5px system-ui,"DejaVu Sans",sans-serif;fill:#24292f}.kd-label-grave{fill:#cf222e}
@media (prefers-color-scheme:dark){
.kd-bg{fill:#0d1117}.kd-frame{fill:#161b22}.kd-grid{stroke:#30363d}.kd-text{fill:#9198a1}.kd-title,.kd-label{fill:#e6edf3}.kd-title{stroke:#0d1117}
.kd-rows{fill:#6ea8fe}.kd-lag{fill:#d29922}.kd-alive{fill:#3fb950}.kd-frozen{fill:#79c0ff}.kd-dead{fill:#f85149}
.kd-parts{stroke:#bc8cff}.kd-mark{stroke:#9198a1}.kd-mark-grave{stroke:#f85149}.kd-label-grave{fill:#f85149}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Turns times into pixels."""

    begin: float
    end: float

    def x(self, wall: float) -> float:
        """Return the horizontal place of a moment."""
        share = (wall - self.begin) / max(self.end - self.begin, 1e-9)
        return _LEFT + min(max(share, 0.0), 1.0) * (WIDTH - _LEFT - _RIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One strip of the picture."""

    top: float
    height: float
    most: float
    """Value at the upper edge."""

    def y(self, value: float) -> float:
        """Return the vertical place of a value."""
        return self.top + self.height * (1 - min(value, self.most) / self.most)


def draw(samples: Sequence[Sample], marks: Sequence[Mark], batches: Sequence[Batch]) -> str:
    """Draw the whole picture.

    Args:
        samples: In order; without any the picture is an empty frame.
        marks: Those with a label are drawn.
        batches: Finished micro-batches of the main job.

    Returns:
        A complete SVG document.

    Runs: anywhere (pure).
    """
    begin = _curtain(samples, marks)
    samples = [sample for sample in samples if sample.wall >= begin]
    batches = [batch for batch in batches if batch.finished_wall >= begin]
    scale = Scale(begin=begin, end=samples[-1].wall if samples else begin + 1)
    labels, label_rows = _labels([mark for mark in marks if mark.label], scale)
    top = _LABELS_TOP + label_rows * _LABEL_ROW + 22
    parts: list[str] = []
    titles: list[str] = []
    first_top = top
    for height, strip, title in _STRIPS:
        parts.append(strip(samples, batches, scale, top, height))
        titles.append(f'<text class="kd-text kd-title" x="{_LEFT}" y="{top - 8}">{escape(title)}</text>')
        top += height + _PANEL_GAP
    bottom = top - _PANEL_GAP
    parts += [_time_axis(scale, bottom), _mark_lines([m for m in marks if m.label], scale, first_top, bottom), labels]
    parts += titles  # last: they are written over the lines
    height_total = bottom + 30
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height_total:.0f}" role="img"'
        f' aria-label="Timeline of the demo"><style>{STYLE}</style>'
        f'<rect class="kd-bg" width="{WIDTH}" height="{height_total:.0f}"/>{"".join(parts)}</svg>'
    )


def _curtain(samples: Sequence[Sample], marks: Sequence[Mark]) -> float:
    """Begin shortly before the first result: the start of a Java machine is no news."""
    first = samples[0].wall if samples else 0.0
    started = next((mark.wall for mark in marks if mark.moment is Moment.STARTED), first)
    return max(first, started - _LEAD_SECONDS)


def nice_ceiling(value: float) -> float:
    """Return the next of 1, 2, 4, 5, 6, 8 times a power of ten at or above the value; 1 for nothing."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 5, 6, 8, 10) if factor * power >= value * (1 - 1e-9))


def _rows_strip(_: Sequence[Sample], batches: Sequence[Batch], scale: Scale, top: float, height: float) -> str:
    rows: Counter[int] = Counter()
    for batch in batches:
        rows[int(batch.finished_wall - scale.begin)] += batch.rows
    # The rows that waited for the first start would make everything after them look flat.
    usual = sorted(rows.values())[-_OUTLIERS - 1 :][:1] or [1]
    panel = Panel(top=top, height=height, most=nice_ceiling(usual[0]))
    bars = "".join(
        f'<rect class="kd-rows" x="{scale.x(scale.begin + second):.1f}" y="{panel.y(count):.1f}"'
        f' width="{max(scale.x(scale.begin + second + 1) - scale.x(scale.begin + second) - 0.6, 0.5):.1f}"'
        f' height="{panel.top + panel.height - panel.y(count):.1f}"/>'
        for second, count in sorted(rows.items())
    )
    return _frame(panel) + bars


def _lag_strip(samples: Sequence[Sample], _: Sequence[Batch], scale: Scale, top: float, height: float) -> str:
    panel = Panel(top=top, height=height, most=nice_ceiling(max((s.lag for s in samples), default=1)))
    points = [(scale.x(s.wall), panel.y(s.lag)) for s in samples]
    return _frame(panel) + _area(points, panel.top + height, "kd-lag")


def _brokers_strip(samples: Sequence[Sample], _: Sequence[Batch], scale: Scale, top: float, height: float) -> str:
    total = max((len(s.brokers) for s in samples), default=1)
    panel = Panel(top=top, height=height, most=max(total, 1))
    shapes = ""
    base = [0] * len(samples)
    for state, css in ((BrokerState.ALIVE, "alive"), (BrokerState.FROZEN, "frozen"), (BrokerState.DEAD, "dead")):
        upper = [low + s.count(state) for low, s in zip(base, samples, strict=True)]
        if any(high > low for high, low in zip(upper, base, strict=True)):
            xs = [scale.x(sample.wall) for sample in samples]
            shapes += _band(xs, [panel.y(v) for v in base], [panel.y(v) for v in upper], f"kd-{css}")
        base = upper
    return _frame(panel) + shapes


def _partitions_strip(samples: Sequence[Sample], _: Sequence[Batch], scale: Scale, top: float, height: float) -> str:
    panel = Panel(top=top, height=height, most=nice_ceiling(max((s.partitions for s in samples), default=1)))
    path = ""
    for sample in samples:
        x, y = scale.x(sample.wall), panel.y(sample.partitions)
        path += f"M{x:.1f} {y:.1f}" if not path else f"H{x:.1f}V{y:.1f}"
    return _frame(panel) + f'<path class="kd-parts" d="{path or "M0 0"}"/>'


def _frame(panel: Panel) -> str:
    width = WIDTH - _LEFT - _RIGHT
    lines = "".join(
        f'<line class="kd-grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{panel.y(v):.1f}" y2="{panel.y(v):.1f}"/>'
        f'<text class="kd-text" x="{_LEFT - 8}" y="{panel.y(v) + 4:.1f}" text-anchor="end">{v:,.0f}</text>'
        for v in (0, panel.most / 2, panel.most)
    )
    return f'<rect class="kd-frame" x="{_LEFT}" y="{panel.top}" width="{width}" height="{panel.height}"/>{lines}'


def _area(points: Sequence[tuple[float, float]], floor: float, css: str) -> str:
    if not points:
        return ""
    line = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="{css}" d="M{points[0][0]:.1f} {floor:.1f}L{line}L{points[-1][0]:.1f} {floor:.1f}Z"/>'


def _band(xs: Sequence[float], lower: Sequence[float], upper: Sequence[float], css: str) -> str:
    """Fill between two staircases."""
    points = [*_staircase(xs, upper), *reversed(_staircase(xs, lower))]
    return f'<path class="{css}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}Z"/>'


def _staircase(xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    points = [(xs[0], ys[0])]
    for i in range(1, len(xs)):
        points += [(xs[i], ys[i - 1]), (xs[i], ys[i])]
    return points


def _time_axis(scale: Scale, bottom: float) -> str:
    seconds = scale.end - scale.begin
    step = next((s for s in (5, 10, 20, 30, 60) if seconds / s <= 12), 120)  # noqa: PLR2004 - so many fit
    ticks = range(0, int(seconds) + 1, step)
    return "".join(
        f'<text class="kd-text" x="{scale.x(scale.begin + tick):.1f}" y="{bottom + 18:.0f}"'
        f' text-anchor="middle">{tick} s</text>'
        for tick in ticks
    )


def _mark_lines(marks: Sequence[Mark], scale: Scale, top: float, bottom: float) -> str:
    return "".join(
        f'<line class="kd-mark{" kd-mark-grave" if mark.moment in _GRAVE else ""}" x1="{scale.x(mark.wall):.1f}"'
        f' x2="{scale.x(mark.wall):.1f}" y1="{top - 20:.0f}" y2="{bottom:.0f}"/>'
        for mark in marks
    )


def _labels(marks: Sequence[Mark], scale: Scale) -> tuple[str, int]:
    """Set the labels in as few rows as they need; each begins at its line, or ends there near the right edge."""
    row_ends: list[float] = []
    texts = ""
    for mark in marks:
        x, width = scale.x(mark.wall), len(mark.label) * _CHARACTER
        left = x if x + width <= WIDTH - _RIGHT else x - width
        row = next((i for i, end in enumerate(row_ends) if end + 8 < left), len(row_ends))
        row_ends[row : row + 1] = [left + width]
        css = "kd-label kd-label-grave" if mark.moment in _GRAVE else "kd-label"
        anchor = "start" if left == x else "end"
        y = _LABELS_TOP + row * _LABEL_ROW
        texts += f'<text class="{css}" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{escape(mark.label)}</text>'
    return texts, max(len(row_ends), 1)


_STRIPS = (
    (130, _rows_strip, "Rows in finished batches, per second"),
    (90, _lag_strip, "Events in Kafka that are not counted yet"),
    (90, _brokers_strip, "Brokers: alive (green), frozen (blue), dead (red)"),
    (80, _partitions_strip, "Partitions of which rows are counted"),
)
"""From top to bottom: height, what draws it, title."""
