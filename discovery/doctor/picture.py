"""The picture: how probable a failed start is, by number of dead entries, with today's point marked. Pure.

Plain SVG with classes, light and dark, no script and nothing loaded from elsewhere.
"""

from collections.abc import Sequence
from dataclasses import replace
from xml.sax.saxutils import escape

from discovery.core.prediction.clients import NEWEST, ClientVersion, configured
from discovery.core.prediction.forecast import Forecast, Limits
from discovery.doctor.diagnose import Diagnosis, curve, percent
from discovery.doctor.render import forecast_sentence, main_failure_mode

_WIDTH, _HEIGHT = 760, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 106, 62
_STYLE = """
.d-bg{fill:#ffffff}.d-grid{stroke:#d8dee4;stroke-width:1}
.d-text{font:12px system-ui,"DejaVu Sans",sans-serif;fill:#57606a}
.d-title{font:600 16px system-ui,"DejaVu Sans",sans-serif;fill:#24292f}
.d-now{fill:none;stroke:#2f6fde;stroke-width:3}.d-old{fill:none;stroke:#cf222e;stroke-width:1.6;stroke-dasharray:6 4}
.d-new{fill:none;stroke:#2da44e;stroke-width:1.6;stroke-dasharray:2 3}
.d-dot{fill:#2f6fde}.d-today{fill:#2f6fde;stroke:#ffffff;stroke-width:3}.d-line{stroke:#2f6fde;stroke-width:1}
.d-said{font:600 13px system-ui,"DejaVu Sans",sans-serif;fill:#24292f}
.d-said{stroke:#ffffff;stroke-width:5px;paint-order:stroke}
@media (prefers-color-scheme:dark){
.d-bg{fill:#0d1117}.d-grid{stroke:#30363d}.d-text{fill:#9198a1}.d-title,.d-said{fill:#e6edf3}.d-said{stroke:#0d1117}
.d-now{stroke:#6ea8fe}.d-old{stroke:#f85149}.d-new{stroke:#3fb950}.d-dot,.d-today{fill:#6ea8fe}.d-today{stroke:#0d1117}
.d-line{stroke:#6ea8fe}}
"""


def draw(diagnosis: Diagnosis) -> str:
    """Draw it: this client, and beside it one before 2.7 and the newest, both with their default timeouts.

    Returns:
        A complete SVG document.

    Runs: anywhere (pure).
    """
    facts, client = diagnosis.facts, diagnosis.described.client
    counts, mode = facts.counts, main_failure_mode(facts)
    points = curve(client.limits, counts, mode)
    total = len(points) - 1
    lines: list[tuple[str, str, Limits]] = [("d-now", f"{client.version}, as configured", client.limits)]
    for css, version in (("d-old", ClientVersion(2, 6)), ("d-new", ClientVersion(*NEWEST))):
        limits = replace(configured(version, {}).limits, system_seconds=client.limits.system_seconds)
        if limits != client.limits:
            lines.append((css, f"{version}, defaults", limits))
    others = len(facts.listed) - total
    kind = mode.value.replace("_", " ") + (f"; {others} more are dead otherwise" if others else "")
    parts = [*_axes(total, kind), _text(_LEFT, 52, f"Today: {forecast_sentence(diagnosis.start)}.")]
    for place, (css, label, limits) in enumerate(lines):
        parts.append(_line(css, curve(limits, counts, mode)))
        parts.append(_legend(place, css, label))
    parts += [f'<circle class="d-dot" cx="{_x(d, total)}" cy="{_y(p.failure)}" r="3"/>' for d, p in enumerate(points)]
    parts += _today(facts.counts.of(mode), points)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(forecast_sentence(diagnosis.start))}"><style>{_STYLE}</style>'
        f'<rect class="d-bg" width="{_WIDTH}" height="{_HEIGHT}"/>{"".join(parts)}</svg>\n'
    )


def _x(dead: int, total: int) -> float:
    return round(_LEFT + dead / max(total, 1) * (_WIDTH - _LEFT - _RIGHT), 1)


def _y(share: float) -> float:
    return round(_HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM), 1)


def _axes(total: int, kind: str) -> list[str]:
    parts = [_text(_LEFT, 30, "How probable is a failed start?", css="d-title")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line class="d-grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_y(share)}" y2="{_y(share)}"/>')
        parts.append(_text(_LEFT - 8, _y(share) + 4, percent(share), anchor="end"))
    step = max(1, -(-total // 20))
    parts += [_text(_x(d, total), _HEIGHT - _BOTTOM + 20, str(d), anchor="middle") for d in range(0, total + 1, step)]
    words = f"dead entries ({kind}) of {total} in the list"
    return [*parts, _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 16, words, anchor="middle")]


def _line(css: str, points: Sequence[Forecast]) -> str:
    total = len(points) - 1
    path = " ".join(f"{_x(dead, total)},{_y(point.failure)}" for dead, point in enumerate(points))
    return f'<polyline class="{css}" points="{path}"/>'


def _legend(place: int, css: str, label: str) -> str:
    left = _LEFT + place * 236
    return f'<line class="{css}" x1="{left}" x2="{left + 28}" y1="76" y2="76"/>' + _text(left + 34, 80, label)


def _today(dead: int, points: Sequence[Forecast]) -> list[str]:
    total = len(points) - 1
    x, y = _x(dead, total), _y(points[dead].failure)
    anchor, away = ("start", 14) if dead <= total / 2 else ("end", -14)
    beside = y + (-12 if points[dead].failure < 1 else 24)  # below the upper edge, above the line elsewhere
    return [
        f'<line class="d-line" x1="{x}" x2="{x}" y1="{y}" y2="{_HEIGHT - _BOTTOM}"/>',
        f'<circle class="d-today" cx="{x}" cy="{y}" r="8"/>',
        _text(x + away, beside, f"today: {percent(points[dead].failure)}", css="d-said", anchor=anchor),
    ]


def _text(x: float, y: float, words: str, *, css: str = "d-text", anchor: str = "start") -> str:
    return f'<text class="{css}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
