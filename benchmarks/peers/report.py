"""Tells the matrix: the short table, the full tables, a chart per case. Pure."""

from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks.peers.titles import CASE_TITLES, OURS, PEERS, SYSTEM_TITLES

Cell = Mapping[str, Any]
_STAR = " ★"
_LEAST_SECONDS, _LEAST_SHARE = 0.3, 0.1
"""A peer is better where it is so much better: two runs of one system differ by as much."""
_COUNTS = ("restarts", "lost", "unread", "repeated", "foreign")
_TIMES = ("gap_seconds", "slowest_seconds", "recovered_seconds")
_COLUMNS = (
    "system", "usual", "gap", "slowest partition", "read all again after", *_COUNTS, "the load's own",
    "load average", "what was reported to the user",
)  # fmt: skip
_ENDLESS = float("inf")

_LEFT, _TOP, _ROW, _WIDTH = 285, 44, 46, 900
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.bar{fill:#2563ab;fill-opacity:.7}.peer{fill:#8a6d3b;fill-opacity:.75}"
    ".fault{stroke:#b3261e;stroke-width:1.5}.base{stroke:#bbb}.bg{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.bar{fill:#8ab4f8}.peer{fill:#d8b878}.fault{stroke:#ff8a80}"
    ".base{stroke:#555}.bg{fill:#111}}"
)


def reported_cases(result: Mapping[str, Any]) -> list[str]:
    """Return the cases that were played, in their order."""
    return [name for name in CASE_TITLES if result["cells"].get(name)]


def short_table(result: Mapping[str, Any]) -> str:
    """Return the short table: gap and recovery of every system, what else went wrong, what was not played."""
    lines = [f"| what happens | {' | '.join(SYSTEM_TITLES.values())} |", "|---|" + "---|" * len(SYSTEM_TITLES)]
    for name in reported_cases(result):
        cells = result["cells"][name]
        shown = [_short(cells[one], one, cells.get(OURS)) if one in cells else "-" for one in SYSTEM_TITLES]
        lines.append(f"| {CASE_TITLES[name]} | {' | '.join(shown)} |")
    missing = [title for name, title in CASE_TITLES.items() if not result["cells"].get(name)]
    return "\n".join([*lines, *(["", f"Not played yet: {'; '.join(missing)}."] if missing else ())])


def shown_time(cells: Mapping[str, Cell], system: str, figure: str) -> str:
    """Return one time of a case in words, with a star where a peer is better than our source by itself."""
    return _time(cells[system], figure, system, cells.get(OURS))


def _short(cell: Cell, system: str, ours: Cell | None) -> str:
    times = [_time(cell, name, system, ours) for name in ("gap_seconds", "recovered_seconds")]
    wrong = [_counted(cell[name], name) for name in ("restarts", "lost", "repeated", "foreign") if cell[name]]
    return "; ".join([f"{times[0]} / {times[1]}", *wrong])


def _counted(count: int, name: str) -> str:
    return f"{count} {name.removesuffix('s') if count == 1 else name}"


def full_tables(result: Mapping[str, Any]) -> str:
    """Return a table for each case."""
    return "\n\n".join(_case_table(name, result["cells"][name]) for name in reported_cases(result))


def _case_table(name: str, cells: Mapping[str, Cell]) -> str:
    head = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    ours = cells.get(OURS)
    rows = [_full(cells[one], one, ours) for one in SYSTEM_TITLES if one in cells]
    title = CASE_TITLES[name]
    chart = f"![rows a second, {title}](../../benchmarks/results/peers-{name}.svg)"
    return "\n".join([f"### {title[0].upper()}{title[1:]}", "", *head, *rows, "", chart])


def _full(cell: Cell, system: str, ours: Cell | None) -> str:
    usual = "-" if cell["usual_seconds"] is None else f"{cell['usual_seconds']:.1f} s"
    times = [usual, *(_time(cell, name, system, ours) for name in _TIMES)]
    counts = [f"{cell[name]}{_STAR if _wins(cell, name, system, ours) else ''}" for name in _COUNTS]
    load = f"{cell['load_average'][0]:g}-{cell['load_average'][1]:g}"
    own = f"{cell['written_gap_seconds']:.1f} s, {cell['written_slowest_seconds']:.1f} s"
    return f"| {' | '.join([SYSTEM_TITLES[system], *times, *counts, own, load, _plain(cell['reported'])])} |"


def _time(cell: Cell, name: str, system: str, ours: Cell | None) -> str:
    seconds = cell[name]
    if seconds is None:
        return f"not in {cell['watched_seconds'] - cell['healed_seconds']:.0f} s"
    more = "" if cell.get(name.replace("_seconds", "_over"), True) else "> "
    return f"{more}{seconds:.1f} s{_STAR if _wins(cell, name, system, ours) else ''}"


def _wins(cell: Cell, name: str, system: str, ours: Cell | None) -> bool:
    """Tell whether a peer does better than our source does by itself; a wrong answer is no better for being quick."""
    if ours is None or system not in PEERS:
        return False
    theirs, mine = _value(cell, name), _value(ours, name)
    margin = 0.0 if name in _COUNTS else max(_LEAST_SECONDS, _LEAST_SHARE * theirs)
    return theirs + margin < mine and not _useless(cell)


def _useless(cell: Cell) -> bool:
    return bool(cell["foreign"] or cell["lost"])


def _value(cell: Cell, name: str) -> float:
    value = cell[name]
    return _ENDLESS if value is None else float(value)


def wins(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (case, system, figure) of everything a peer does better."""
    names = (*_TIMES, *_COUNTS)
    return [
        (case, system, name)
        for case in reported_cases(result)
        for system, cell in result["cells"][case].items()
        for name in names
        if _wins(cell, name, system, result["cells"][case].get(OURS))
    ]


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def chart(name: str, cells: Mapping[str, Cell]) -> str:
    """Draw rows a second of each system over one axis of time; the line is the moment of the fault.

    The base line of a system is as long as it was watched.
    """
    systems = [one for one in SYSTEM_TITLES if one in cells]
    seconds = max(len(cells[one]["line"]["rows"]) * cells[one]["line"]["step"] for one in systems)
    scale = (_WIDTH - _LEFT - 20) / seconds
    height = _TOP + _ROW * len(systems) + 34
    title = f"{CASE_TITLES[name]}: new rows over time"
    fault = _LEFT - cells[systems[0]]["line"]["start"] * scale
    parts = [_strip(one, cells[one], place, scale) for place, one in enumerate(systems)]
    parts.append(f'<line class="fault" x1="{fault:.1f}" x2="{fault:.1f}" y1="{_TOP - 6}" y2="{height - 30}"/>')
    parts += [_second(at, fault, scale, height) for at in _ticks(seconds)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' aria-label="{escape(title)}"><style>{_STYLE}</style><rect class="bg" width="{_WIDTH}" height="{height}"/>'
        f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>{"".join(parts)}</svg>\n'
    )


def _ticks(seconds: float) -> list[int]:
    step = next(one for one in (5, 10, 20, 50, 100) if seconds / one <= 12 or one == 100)  # noqa: PLR2004
    return list(range(0, int(seconds) - 4, step))


def _second(at: int, fault: float, scale: float, height: int) -> str:
    return f'<text x="{fault + at * scale:.1f}" y="{height - 10}" text-anchor="middle">{at} s</text>'


def _strip(system: str, cell: Cell, place: int, scale: float) -> str:
    rows, step = cell["line"]["rows"], cell["line"]["step"]
    bottom = _TOP + (place + 1) * _ROW - 8
    usual = max(sorted(rows)[int(len(rows) * 0.9)], 1)  # what came late comes in one burst and would flatten the rest
    look = "peer" if system in PEERS else "bar"
    wide, high = step * scale, _ROW - 16
    bars = "".join(
        f"M{_LEFT + at * wide:.1f} {bottom}v-{min(count / usual, 1.2) * high:.1f}h{wide:.2f}V{bottom}z"
        for at, count in enumerate(rows)
        if count
    )
    return (
        f'<text x="{_LEFT - 10}" y="{bottom - 8}" text-anchor="end">{escape(SYSTEM_TITLES[system])}</text>'
        f'<line class="base" x1="{_LEFT}" x2="{_LEFT + len(rows) * wide:.1f}" y1="{bottom}" y2="{bottom}"/>'
        f'<path class="{look}" d="{bars}"/>'
    )
