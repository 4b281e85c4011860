"""Draws single measurements as dots, a row for each case: plain SVG, light and dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _RIGHT, _TOP, _LINE, _WIDTH = 290, 30, 44, 30, 890
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.grid{stroke:#ddd}.dot{fill:#2563ab;fill-opacity:.55}"
    ".open{fill:none;stroke:#b3261e;stroke-width:1.5}.mid{stroke:#222;stroke-width:2}.bg{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}.dot{fill:#8ab4f8}.open{stroke:#ff8a80}"
    ".mid{stroke:#ddd}.bg{fill:#111}}"
)
_STEPS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
_TICKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The measurements of one case."""

    label: str
    values: tuple[float, ...]
    censored: tuple[bool, ...] = ()
    """Which of them were not over when watching ended; none if empty."""


def strips(title: str, rows: Sequence[Strip], *, unit: str) -> str:
    """Return an SVG document: a dot for each value, a bar at the median, a triangle for "at least so much"."""
    most = max(value for row in rows for value in row.values)
    step = next((s for s in _STEPS if most / s <= _TICKS), _STEPS[-1])
    top = (int(most / step) + 1) * step
    height = _TOP + len(rows) * _LINE + 34

    def x(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / top

    parts = [_tick(x(number * step), number * step, unit, height) for number in range(round(top / step) + 1)]
    parts += [part for index, row in enumerate(rows) for part in _row(row, [x(v) for v in row.values], index)]
    return _document(title, height, parts)


def _tick(x: float, value: float, unit: str, height: int) -> str:
    return (
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 8}" y2="{height - 26}"/>'
        f'<text x="{x:.1f}" y="{height - 8}" text-anchor="middle">{value:g} {escape(unit)}</text>'
    )


def _row(row: Strip, places: Sequence[float], index: int) -> list[str]:
    y = _TOP + index * _LINE + _LINE / 2
    label = f"{row.label} (n = {len(row.values)})"
    parts = [f'<text x="{_LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>']
    for number, x in enumerate(places):
        if number < len(row.censored) and row.censored[number]:
            parts.append(f'<path class="open" d="M{x - 5:.1f} {y - 6:.1f}l10 6l-10 6z"/>')
        else:
            parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="5"/>')
    middle = sorted(places)[(len(places) - 1) // 2]
    return [*parts, f'<line class="mid" x1="{middle:.1f}" x2="{middle:.1f}" y1="{y - 10:.1f}" y2="{y + 10:.1f}"/>']


def _document(title: str, height: int, parts: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{_STYLE}</style><rect class="bg" width="{_WIDTH}" height="{height}"/>'
        f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>{"".join(parts)}</svg>\n'
    )
