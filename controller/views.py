"""How the command line shows answers to people: tables of what the JSON says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from controller.churn import spell

Json = dict[str, Any]
View = Callable[[Json], None]

_COLORS = {"up": "green", "drain": "yellow", "down": "red", "unknown": "yellow"}


def check(answer: Json) -> None:
    """What a configuration would serve."""
    announced = ", ".join(answer["announced"]) or "nothing"
    _console().print(f"node {answer['node']}: announces {announced}; {answer['probes']} probes")
    if answer["steering"] == "rss":
        each = "" if answer["workers"] == 1 else ", where every port spreads flows over as many queues by RSS"
        _console().print(f"steering: rss with {_workers(answer['workers'])}{each}", markup=False)
    if answer["cluster"]:
        nodes = ", ".join(f"{name} {address}" for name, address in answer["cluster"].items())
        _console().print(f"shares fragments out in the cluster {nodes}", markup=False)
    if _too_many(answer["vips"]):
        _table("", _IN_NUMBERS, _numbers(answer["vips"]))
        return
    rows = [
        (_service(vip), m["name"], m["address"], m["weight"], _colored(m["status"]), ", ".join(m["checks"]))
        for vip in answer["vips"]
        for m in vip["members"]
    ]
    _table("", ("vip", "backend", "address", "weight", "status", "checks"), rows)
    _checks(answer["health_checks"])
    for pool, share in answer["panic_above"].items():
        line = f"pool {pool}: while more than {share:.0%} of it is down, all of it is kept in service"
        _console().print(line, markup=False)


def _checks(checks: Iterable[Json]) -> None:
    keys = ("type", "targets", "interval", "fast_interval", "timeout", "rise", "fall")
    rows = [(c["name"], *(c[key] for key in keys)) for c in checks]
    if rows:
        _table("", ("check", "type", "probes", "every", "in doubt", "timeout", "rise", "fall"), rows)


def status(answer: Json) -> None:
    """A running node."""
    forwarder, speaker = answer["forwarder"], answer["speaker"]
    print_line = _console().print
    print_line(f"node {answer['node']} (pid {answer['pid']}): {answer['state']}", style="bold")
    if answer["trouble"]:
        print_line(f"not in line: {answer['trouble']}", style="red", markup=False)
    print_line(
        f"forwarder pid {forwarder['pid'] or '-'}: {forwarder['reason']}, generation {answer['generation']}, "
        f"{forwarder['restarts']} restarts, canary: {forwarder['canary']}",
        style=None if forwarder["healthy"] else "red",
        markup=False,
    )
    if steering := forwarder.get("steering"):
        _steering(steering)
    listening = "connected" if speaker["connected"] else "not connected"
    style = None if speaker["connected"] else "red"
    print_line(f"speaker {speaker['kind']} pid {speaker['pid'] or '-'}: {listening}", style=style)
    for neighbor, state in speaker["sessions"].items():
        print_line(f"  session with {neighbor}: {state}", style=None if state == "up" else "red", markup=False)
    print_line(f"announced: {', '.join(answer['announced']) or 'nothing'}")
    _overrides(answer["overrides"])
    _panics(answer["panics"])
    _members(answer)
    _probes(answer["probes"])
    _health(answer)
    if answer["stats"]:
        _stats(answer["stats"])


def reload(answer: Json) -> None:
    """What a reload has changed or would change."""
    console = _console()
    if not answer["changes"]:
        console.print("nothing changes")
    for line in answer["changes"]:
        console.print(line, markup=False)
    if not answer["applied"]:
        console.print("(dry run: nothing was applied)")
    if "vips" in answer:
        _moves(answer["vips"])
        if answer["flows_unknown"]:
            console.print(f"the live flows are not known: {answer['flows_unknown']}", style="yellow", markup=False)
        else:
            _flows(answer["vips"])


def plan(answer: Json) -> None:
    """What one configuration in place of another would do."""
    console = _console()
    for line in answer["changes"] or ["nothing changes"]:
        console.print(line, markup=False)
    if answer["restart"]:
        keys = ", ".join(answer["restart"])
        console.print(f"a running node has to be restarted for {keys}", style="yellow", markup=False)
    _moves(answer["vips"])


def overrides(answer: Json) -> None:
    """The operator's overrides."""
    if not answer["drained"] and not answer["drain_self"]:
        _console().print("no backend is drained, nor this node")
    _overrides(answer["overrides"])


def _overrides(said: Json) -> None:
    """Who drained what, when and why."""
    lines = dict(said["backends"])
    if said["node"]:
        lines["this node, which announces nothing"] = said["node"]
    for what, word in lines.items():
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(word["at"]))
        why = f": {word['why']}" if word["why"] else ""
        _console().print(f"drained by {word['by']} at {at}{why}: {what}", style="yellow", markup=False)


def flushed(answer: Json) -> None:
    """A backend was flushed, or all were."""
    _console().print(f"flushed {answer['flushed'] or 'the flows of all backends'}")


def table(answer: Json) -> None:
    """A Maglev table, in numbers."""
    _console().print(f"vip {answer['vip']}: {answer['size']} slots, digest {answer['digest']}")
    rows = [(name, slots, f"{100 * slots / answer['size']:.3f} %") for name, slots in answer["backends"].items()]
    _table("", ("backend", "slots", "share"), rows)


def pairs(answer: Json) -> None:
    """One line for each key."""
    for key, value in answer.items():
        _console().print(f"{key:>8}  {'-' if value is None else value}", markup=False)


_MOVES = ("moved", "left", "joined", "besides")
_FLOWS = ("live", "at_risk", "moved", "lost")


def _moves(vips: Iterable[Json]) -> None:
    """Per vip the slots that move, and why; `-` where they cannot be compared."""
    rows = []
    for vip in vips:
        what = ", ".join(vip["differs"]) or ("" if vip["change"] == "kept" else vip["change"])
        moves = [(vip["slots"] or {}).get(why) for why in _MOVES]
        rows.append((_service(vip), what, vip["table_size"], *moves, spell(vip["share"])))
    _table("slots", ("vip", "differs", "slots", *_MOVES, "share"), rows)


def _flows(vips: Iterable[Json]) -> None:
    """Per vip the live flows, and what becomes of them; `-` where entries do not tell."""
    rows = [(_service(vip), *(vip["flows"][what] for what in _FLOWS)) for vip in vips]
    _table("live flows", ("vip", "live", "at risk", "moved", "lost"), rows)


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count} workers"


def _steering(steering: Json) -> None:
    """The layout in force, and why it is not the one of the configuration."""
    if steering["instead"]:
        _console().print(steering["instead"], style="yellow", markup=False)
    else:
        _console().print(f"steering: {steering['layout']}", markup=False)


_LINES = 2000
_IN_NUMBERS = ("vip", "backends", "up", "draining", "down")


def _too_many(vips: Iterable[Json]) -> bool:
    """Whether nobody would read a line for each backend of each vip; --json has them."""
    return sum(len(vip["members"]) for vip in vips) > _LINES


def _numbers(vips: Iterable[Json]) -> Iterator[tuple[object, ...]]:
    for vip in vips:
        counts = Counter(member["status"] for member in vip["members"])
        yield _service(vip), len(vip["members"]), counts["up"], counts["drain"], counts["down"]


def _members(answer: Json) -> None:
    if _too_many(answer["vips"]):
        _table("vips", _IN_NUMBERS, _numbers(answer["vips"]))
        return
    rows = []
    for vip in answer["vips"]:
        said = Text("announced") if vip["announced"] else Text("not announced", "red")
        for m in vip["members"]:
            status = _colored(m["status"])
            rows.append((_service(vip), said, m["name"], m["address"], m["weight"], status, m["slots"]))
    _table("vips", ("vip", "", "backend", "address", "weight", "status", "slots"), rows)


def _panics(panics: Json) -> None:
    for pool, panic in panics.items():
        vips = ", ".join(panic["vips"])
        line = f"panic: {panic['down']} of {panic['of']} backends of pool {pool} are down, all are kept for {vips}"
        _console().print(line, style="red", markup=False)


def _probes(probes: Json) -> None:
    """What keeps probes from being made, or made in time; nothing when nothing does."""
    if probes["not_probed"]:
        line = f"{probes['not_probed']} of {probes['targets']} checks cannot be made by this node: see last probe"
        _console().print(line, style="red", markup=False)
    if probes["too_many"]:
        line = (
            f"{probes['at_once']} probes at a time at most, by the limit of open files: when many fail, some are late"
        )
        _console().print(line, style="yellow", markup=False)


def _health(answer: Json) -> None:
    now = time.time()
    rows = [
        (h["address"], _check(h), _colored(h["verdict"]), f"{now - h['since']:.0f} s", h["reason"])
        for h in answer["health"]
    ]
    if rows:
        _table("health", ("address", "check", "verdict", "for", "last probe"), rows)


def _check(health: Json) -> str:
    return f"{health['check']} by {health['vip']}" if health["vip"] else str(health["check"])


_TRAFFIC = ("packets", "bytes", "flows")
_NAMES = 8  # in one line
_CONNECTIONS = ("live", "entries", "inserted", "evicted", "refused")


def _stats(stats: Mapping[str, Any]) -> None:
    waiting = f", of which {held} fragments wait for their first ones" if (held := stats.get("held")) else ""
    _table(f"packets received: {stats['received']}{waiting}", ("fate", "packets"), _fates(stats))
    pointers = ("received", "processed", "reserved", "ready", "sent", "recycled")
    rings = []
    for port in stats["ports"]:
        values = port["receive"] | port["transmit"]
        rings.append((port["device"], *(values[pointer] for pointer in pointers), port["missed"]))
    _table("ports", ("port", *pointers, "missed"), rings)
    _table(
        "backends, also those that left and have flows", ("backend", *_TRAFFIC), _rows(stats["backends"], _TRAFFIC)
    )
    workers = {f"worker {index}": counters for index, counters in enumerate(stats["workers"])}
    _table("connection tables", ("", *_CONNECTIONS), _rows(workers, _CONNECTIONS))
    if connections := stats.get("connections"):
        _console().print(f"connections: {_kept(connections)}", markup=False)
    _path_mtus(stats.get("path_mtus", ()))
    _load_bounds(stats.get("load_bounds", {}))
    pool, pieces = stats["pool"], stats["pool"].get("pieces")  # an earlier version's forwarder has none
    _console().print(f"packet pool: {pool['free']} of {pool['size']} free")
    if pieces is not None:
        free, sent = f"{pieces['free']} of {pieces['size']} free", stats["own"]["pieces"]
        _console().print(f"pieces of cut packets: {free}, {sent} sent beyond one a packet")


def _path_mtus(learned: Iterable[Mapping[str, Any]]) -> None:
    rows = [(way["backend"], way["address"], way["mtu"], f"{way['seconds']} s") for way in learned]
    if rows:
        _table("path MTUs that routers told of", ("backend", "address", "mtu", "for"), rows)


def _load_bounds(bounds: Mapping[str, Mapping[str, Any]]) -> None:
    for vip, load in bounds.items():
        names = load["over"]
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        said = f"over it: {', '.join(names[:_NAMES])}{more}" if names else "no backend is over it"
        _console().print(f"vip {vip}: load bound {load['bound']:g}, {said}", markup=False)


def _fates(stats: Mapping[str, Any]) -> Iterator[tuple[object, ...]]:
    """Fates that packets met; under those that drop, why."""
    reasons = stats.get("reasons", {})  # an adopted forwarder of an earlier version tells none
    dropped = [reason for reason in reasons.values() if reason["kind"] == "dropped"]
    for fate, packets in stats["fates"].items():
        if packets:
            yield fate, packets
            yield from ((f"  {r['text']}", r["packets"]) for r in dropped if r["fate"] == fate)


def _kept(connections: Mapping[str, Any]) -> str:
    if connections["started_empty"] is not None:
        return f"started empty: {connections['started_empty']}"
    return f"{connections['kept']} kept from the forwarder before"


def _rows(things: Mapping[str, Mapping[str, Any]], columns: tuple[str, ...]) -> list[tuple[object, ...]]:
    return [(name, *(counters.get(column) for column in columns)) for name, counters in things.items()]


def _service(vip: Mapping[str, Any]) -> str:
    address = f"[{vip['address']}]" if ":" in vip["address"] else vip["address"]
    return f"{vip['name']} {vip['protocol']} {address}:{vip['port'] or 'any'}"


def _colored(status: str) -> Text:
    return Text(status, _COLORS[status])


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> None:
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else _text(cell) for cell in row))
    _console().print(table)


def _text(cell: object) -> Text:
    """Never markup: an IPv6 address in brackets would be taken for some."""
    return Text("-" if cell in (None, "") else str(cell))


def _console() -> Console:
    return Console(highlight=False, soft_wrap=True)
