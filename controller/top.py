"""`maglev top`: what a running node does per second, from its status taken again and again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

Json = dict[str, Any]

_ROWS = 15  # of backends and vips: the busiest


def rates(before: Json, after: Json, seconds: float) -> Json:
    """Per second: packets received, each fate's, packets and bits of each vip and backend, new flows.

    Of what one of the two statuses does not know (a forwarder that was restarted counts from 0 again) there is no
    rate.
    """
    old, new = before["stats"], after["stats"]
    if not old or not new or old["received"] > new["received"]:
        return {"received": None, "fates": {}, "vips": {}, "backends": {}, "new_flows": None}
    inserted = [sum(worker["inserted"] for worker in stats["workers"]) for stats in (old, new)]
    return {
        "received": (new["received"] - old["received"]) / seconds,
        "fates": {
            fate: (packets - old["fates"].get(fate, 0)) / seconds
            for fate, packets in new["fates"].items()
            if packets != old["fates"].get(fate, 0)
        },
        "vips": _traffic(old["vips"], new["vips"], seconds),
        "backends": _traffic(old["backends"], new["backends"], seconds),
        "new_flows": (inserted[1] - inserted[0]) / seconds,
    }


def _traffic(old: Mapping[str, Any], new: Mapping[str, Any], seconds: float) -> Json:
    return {
        name: {
            "packets": (counted["packets"] - old[name]["packets"]) / seconds,
            "bits": (counted["bytes"] - old[name]["bytes"]) * 8 / seconds,
        }
        for name, counted in new.items()
        if name in old
    }


def screen(status: Json, rate: Json) -> RenderableType:
    """All of it for a person."""
    return Group(*_parts(status, rate))


def _parts(status: Json, rate: Json) -> Iterator[RenderableType]:
    forwarder = status["forwarder"]
    yield Text(f"{status['node']}: {status['state']}, forwarder {forwarder['reason']}", "bold")
    yield Text(f"announced: {', '.join(status['announced']) or 'nothing'}")
    stats = status["stats"]
    if not stats:
        yield Text("the forwarder does not answer", "red")
        return
    live = sum(worker["live"] for worker in stats["workers"])
    entries = sum(worker["entries"] for worker in stats["workers"])
    new = _si(rate["new_flows"])
    yield Text(f"received {_si(rate['received'])} packets/s, new flows {new}/s, {live} of {entries} flows remembered")
    fates = sorted(rate["fates"].items(), key=lambda fate: -fate[1])
    yield _table(("fate", "packets/s"), [(fate, _si(per_second)) for fate, per_second in fates])
    for what in ("vips", "backends"):
        busiest = sorted(rate[what].items(), key=lambda thing: -thing[1]["packets"])[:_ROWS]
        rows = [(name, _si(of["packets"]), _si(of["bits"])) for name, of in busiest]
        yield _table((what, "packets/s", "bit/s"), rows)
    pointers = ("received", "processed", "reserved", "ready", "sent", "recycled")
    ports = [(port["device"], *map(str, _pointers(port, pointers))) for port in stats["ports"]]
    yield _table(("port", *pointers), ports)


def _pointers(port: Json, names: tuple[str, ...]) -> Iterator[object]:
    values = port["receive"] | port["transmit"]
    return ("-" if values[name] is None else values[name] for name in names)


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", min_width=24 if number == 0 else 10)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _si(value: float | None) -> str:
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if value < 1000:
            return f"{value:.0f}" if not unit else f"{value:.2f} {unit}"
        value /= 1000
    return f"{value:.2f} T"


def watch(look: Callable[[], Json], interval: float, count: int | None, as_json: bool) -> None:
    """Look every `interval` seconds, `count` times or until interrupted, and show what happened in between."""
    before, at = look(), time.monotonic()
    console = Console()
    live = Live(console=console, screen=console.is_terminal and not as_json, auto_refresh=False)
    shown = 0
    with live:
        try:
            while count is None or shown < count:
                time.sleep(interval)
                after, now = look(), time.monotonic()
                rate = rates(before, after, now - at)
                if as_json:
                    print(json.dumps({"at": time.time(), "node": after["node"], **rate}), flush=True)
                else:
                    live.update(screen(after, rate), refresh=True)
                before, at, shown = after, now, shown + 1
        except KeyboardInterrupt:
            return
