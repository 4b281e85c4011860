"""The status page: one look tells which brokers live, are quarantined or rejected, why, and since when.

Plain tables made here, so that it reads without JavaScript too; a script puts new content in place every two seconds.
Whatever comes from Kafka or from clients is escaped, and the policy sent along runs no script but ours.
"""

import base64
import hashlib
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from starlette.responses import Response

from discovery.core.model import LoopState
from discovery.feed.base import FeedView
from discovery.service.api.documents import age_of, brokers_document, consumer_document
from discovery.service.api.responses import freshness
from discovery.service.cluster import Cluster, Shown
from discovery.service.service import Service

_ROWS = 200
"""Most rows of a table: a page is for people; the API has them all."""
_EVENTS = 50
_CSS, _JS = (files("discovery.service").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("css", "js"))
_POLICY = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_MARKS = {
    "healthy": ("good", "● alive"),
    "quarantined": ("wait", "◐ quarantined"),
    "rejected": ("bad", "✕ rejected"),
    "unasked": ("soft", "○ not asked yet"),
}
"""Sign, word and colour say the same: nobody needs to see the colour."""
_BROKER_HEAD = ("Address", "Broker", "Condition", "Why", "Since", "#Leads", "In the list")
_TOPIC_HEAD = ("Topic", "#Partitions", "#Parked", "Why parked")
_CONSUMER_HEAD = ("Consumer", "Kind", "#Lag", "Applied generation", "#Parked", "Still lists, though not alive")
_EVENT_HEAD = ("When", "What")
_WORST = ("rejected", "quarantined", "unasked", "healthy")
_STATES = {
    LoopState.FRESH: "good",
    LoopState.COLD: "soft",
    LoopState.STALE: "wait",
    LoopState.FAILSAFE: "bad",
    LoopState.REJECTING: "bad",
}


def page(service: Service) -> Response:
    """Return the page as of now.

    Runs: event loop; O(partitions), a few milliseconds for thousands.
    """
    sections = "".join(_section(service, hub.cluster) for hub in service.hubs.values())
    body = sections or "<section id='none'><p>The loops are being started.</p></section>"
    first = next(iter(service.hubs.values()), None)
    shown = first.shown() if first else None
    headers = freshness(shown.view if shown else None)
    headers["Content-Security-Policy"] = f"{_POLICY}; style-src {_hash(_CSS)}; script-src {_hash(_JS)}"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Referrer-Policy"] = "no-referrer"
    states = ", ".join(
        f"{escape(hub.cluster.name)} {items.view.state.value}"
        for hub in service.hubs.values()
        if (items := hub.shown()) is not None
    )
    title = f"{states or 'starting'} - kafka-discovery"
    return Response(_frame(body, title), media_type="text/html", headers=headers)


def _frame(body: str, title: str) -> str:
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<noscript><meta http-equiv='refresh' content='5'></noscript>"
        f"<style>{_CSS}</style></head><body><header><h1>kafka-discovery</h1>"
        "<span id='connection' class='soft' role='status'>reload for news</span></header>"
        f"<main>{body}</main><footer class='soft'>As JSON: <a href='/v1/clusters'>/v1/clusters</a>, "
        "<a href='/v1/consumers'>/v1/consumers</a>; every route: <a href='/openapi.json'>/openapi.json</a></footer>"
        f"<script>{_JS}</script></body></html>"
    )


def _section(service: Service, cluster: Cluster) -> str:
    name = escape(cluster.name, quote=True)
    shown = cluster.shown()
    if shown is None:
        return f"<section id='c-{name}'><h2>{name}</h2><p>The loop is being started.</p></section>"
    view, now = shown.view, service.clock.wall()
    state = f"<span class='state {_STATES[view.state]}'>{view.state.value}</span>"
    return (
        f"<section id='c-{name}' aria-labelledby='h-{name}'><h2 id='h-{name}'>{name}{state}</h2>"
        f"<p class='soft id'>Cluster id: {escape(str(view.cluster_id or 'not known yet'))}</p>"
        f"<p class='sentence' aria-live='polite'>{escape(view.sentence)}</p>{_fatal(view)}"
        f"{_tiles(service, cluster, view)}{_brokers(cluster, shown, now)}{_topics(cluster, view, now)}"
        f"{_consumers(service, cluster, view)}{_events(cluster, now)}</section>"
    )


def _fatal(view: FeedView) -> str:
    return f"<p class='bad' role='alert'>{escape(view.fatal)}</p>" if view.fatal else ""


def _tiles(service: Service, cluster: Cluster, view: FeedView) -> str:
    age = age_of(view)
    alive = sum(report.verdict is not None and report.verdict.value == "alive" for report in view.addresses.values())
    parked = sum(one.parked_reason is not None for one in view.partitions.values())
    consumers = service.registry.all(service.clock.monotonic(), cluster.name)
    everybody = len(view.addresses)
    tiles = [
        ("Addresses alive", f"{alive} of {everybody}", "" if alive == everybody else "wait" if alive else "bad"),
        ("Confirmed", "never" if age is None else f"{_span(age)} ago", ""),
        ("Partitions", str(len(view.partitions)), ""),
        ("Parked", str(parked), "bad" if parked else ""),
        ("Topics", str(len({tp.topic for tp in view.partitions})), ""),
        ("Consumers", str(len(consumers)), ""),
        ("Generation", str(view.generation), ""),
    ]
    items = "".join(f"<div><dt>{name}</dt><dd class='{kind}'>{escape(text)}</dd></div>" for name, text, kind in tiles)
    return f"<dl class='tiles'>{items}</dl>"


def _brokers(cluster: Cluster, shown: Shown, now: float) -> str:
    items = brokers_document(cluster, shown)["brokers"]
    items.sort(key=lambda b: (_WORST.index(b["condition"]), b["broker_id"] is None, b["broker_id"] or 0))
    rows = [_broker(cluster, one, now) for one in items[:_ROWS]]
    return _table(cluster, "Brokers", _BROKER_HEAD, rows, len(items))


def _broker(cluster: Cluster, one: dict[str, Any], now: float) -> str:
    kind, mark = _MARKS[one["condition"]]
    why = one["detail"] or ("" if one["verdict"] in (None, "alive") else one["verdict"].replace("_", " "))
    until = one["quarantined_until_wall"]
    if until is not None and until > now:
        why += f"; asked again in {_span(until - now)}"
    broker = "-" if one["broker_id"] is None else str(one["broker_id"]) + (f" ({one['rack']})" if one["rack"] else "")
    cells = [
        f"<td>{escape(broker)}</td>",
        f"<td class='mark {kind}'>{mark}</td>",
        f"<td class='why'>{escape(why)}</td>",
        _when(one["since_wall"], now),
        f"<td class='number'>{one['leads_partitions']}</td>",
        f"<td>{'configured' if one['configured'] else 'learned'}</td>",
    ]
    return _row(cluster, "b", _BROKER_HEAD, one["address"], cells, state=one["condition"])


def _topics(cluster: Cluster, view: FeedView, now: float) -> str:
    sizes = Counter(tp.topic for tp in view.partitions)
    parked: dict[str, list[tuple[int, str, float | None]]] = {}
    for tp, one in view.partitions.items():
        if one.parked_reason is not None:
            parked.setdefault(tp.topic, []).append((tp.partition, one.parked_reason, one.parked_since_wall))
    names = sorted(sizes, key=lambda name: (-len(parked.get(name, ())), name))
    rows = []
    for name in names[:_ROWS]:
        out = parked.get(name, [])
        kind = "bad" if out else "good"
        cells = [
            f"<td class='number'>{sizes[name]}</td>",
            f"<td class='number {kind}'>{len(out) or '-'}</td>",
            f"<td class='why'>{_reasons(cluster, name, out, now)}</td>",
        ]
        rows.append(_row(cluster, "t", _TOPIC_HEAD, name, cells, state=str(len(out))))
    return _table(cluster, "Topics", _TOPIC_HEAD, rows, len(names))


def _reasons(cluster: Cluster, topic: str, out: Sequence[tuple[int, str, float | None]], now: float) -> str:
    if not out:
        return ""
    items = [
        f"<li>partition {partition}: {escape(reason)}{'' if since is None else f', for {_span(now - since)}'}</li>"
        for partition, reason, since in out[:_ROWS]
    ]
    identity = escape(f"d-{cluster.name}-{topic}", quote=True)
    first = escape(out[0][1])
    return f"<details id='{identity}'><summary id='s-{identity}'>{first}</summary><ul>{''.join(items)}</ul></details>"


def _consumers(service: Service, cluster: Cluster, view: FeedView) -> str:
    now = service.clock.monotonic()
    living = service.registry.all(now, cluster.name)
    rows = []
    for one in living[:_ROWS]:
        said = consumer_document(one, view, now=now)
        bad = "; ".join(f"{address} ({why})" for address, why in said["bad_bootstrap_servers"].items())
        behind = f"behind: {one.acked_generation}" if said["behind"] else str(one.acked_generation)
        cells = [
            f"<td>{escape(one.kind)}</td>",
            f"<td class='number'>{'unknown' if said['lag'] is None else said['lag']}</td>",
            f"<td class='{'wait' if said['behind'] else 'good'}'>{behind}</td>",
            f"<td class='number'>{len(one.parked) or '-'}</td>",
            f"<td class='{'bad' if bad else 'soft'}'>{escape(bad) or 'none'}</td>",
        ]
        rows.append(_row(cluster, "q", _CONSUMER_HEAD, one.id, cells, state=str(said["behind"])))
    return _table(cluster, "Consumers", _CONSUMER_HEAD, rows, len(living), nothing="Nobody has reported lately.")


def _events(cluster: Cluster, now: float) -> str:
    rows = []
    for one in reversed(cluster.timeline.since(0, limit=_EVENTS)):
        cells = [f"<td>{escape(one.event.sentence)}</td>"]
        rows.append(_row(cluster, "e", _EVENT_HEAD, str(one.number), cells, state="", first=_clock(one.wall, now)))
    return _table(cluster, "What happened", _EVENT_HEAD, rows, len(rows), nothing="Nothing yet.")


def _row(
    cluster: Cluster, kind: str, heads: Sequence[str], name: str, cells: Iterable[str], *, state: str, first: str = ""
) -> str:
    """Return a row. It names its columns and roles itself: on a narrow screen it is shown as a list, not as a row."""
    identity = escape(f"{kind}-{cluster.name}-{name}", quote=True)
    items = "".join(
        cell.replace("<td", f"<td role='cell' data-label='{head.removeprefix('#')}'", 1)
        for head, cell in zip(heads[1:], cells, strict=True)
    )
    return (
        f"<tr role='row' id='{identity}' data-state='{escape(state)}'>"
        f"<th role='rowheader' scope='row'>{first or escape(name)}</th>{items}</tr>"
    )


def _table(
    cluster: Cluster, title: str, head: Sequence[str], rows: Sequence[str], total: int, *, nothing: str = "None."
) -> str:
    if not rows:
        return f"<h3>{title}</h3><p class='soft'>{nothing}</p>"
    number = " class='number'"
    columns = "".join(
        f"<th role='columnheader' scope='col'{number if one.startswith('#') else ''}>{one.removeprefix('#')}</th>"
        for one in head
    )
    more = f"<p class='soft'>{total - len(rows)} more: see the API.</p>" if total > len(rows) else ""
    label = escape(f"{title} of {cluster.name}", quote=True)
    identity = escape(f"r-{cluster.name}-{title.replace(' ', '-')}", quote=True)
    return (
        f"<h3>{title}</h3><div class='scroll' id='{identity}' tabindex='0' role='region' aria-label='{label}'>"
        f"<table role='table'><caption>{label}</caption><thead role='rowgroup'><tr role='row'>{columns}</tr></thead>"
        f"<tbody role='rowgroup'>{''.join(rows)}</tbody></table></div>{more}"
    )


def _when(wall: float | None, now: float) -> str:
    return "<td class='when'>-</td>" if wall is None else f"<td class='when'><span>{_clock(wall, now)}</span></td>"


def _clock(wall: float, now: float) -> str:
    """Return a moment as people read it: the time of day, and how long ago."""
    at = time.gmtime(wall)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", at)
    day = "" if now - wall < 86_400 else time.strftime("%d %b ", at)  # noqa: PLR2004 - a day
    text = f"{day}{time.strftime('%H:%M:%S', at)} UTC"
    return f"<time datetime='{stamp}'>{text}</time> <span class='soft'>{_span(now - wall)} ago</span>"


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
