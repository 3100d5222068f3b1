"""What `maglev hashing compare` is asked, from words to values. Every refusal is a ValueError that says what to
write.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from forwarder.hashing.schemes import SCHEMES

Weights = dict[str, int]
MOST_NODES = 1 << 16
DEFAULT_SCHEMES = tuple(name for name in SCHEMES if name != "shuffle")  # which takes seconds where others take none


@dataclass(frozen=True, slots=True)
class Asked:
    """A scheme and its options, as in `ring:points=1000`."""

    text: str
    scheme: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """Of the set of nodes, as in `remove:5`."""

    text: str
    apply: Callable[[Weights, Random], Weights]


def scheme(text: str) -> Asked:
    """NAME or NAME:OPTION=VALUE,... with the options of that scheme."""
    name, _, rest = text.partition(":")
    if name not in SCHEMES:
        raise ValueError(f"there is no scheme {name}; write one of {', '.join(SCHEMES)}")
    known = _options(name)
    options = {}
    for pair in filter(None, rest.split(",")):
        key, equals, value = pair.partition("=")
        if key not in known or not equals:
            write = "write " + ", ".join(f"{option}=NUMBER" for option in known) if known else "it has none"
            raise ValueError(f"{text}: {name} has no option {pair}; {write}")
        try:
            options[key] = known[key](value)
        except ValueError:
            raise ValueError(f"{text}: {key} is a number, not {value}") from None
    return Asked(text, name, options)


def _options(name: str) -> dict[str, type]:
    """Those of a scheme that are numbers."""
    parameters = inspect.signature(SCHEMES[name], eval_str=True).parameters.values()
    return {p.name: p.annotation for p in parameters if p.annotation in (int, float)}


def nodes(text: str, weights: str) -> Weights:
    """A number of nodes, or their names with commas; `weights` with commas, gone round for as long as there are
    nodes.
    """
    if text.isdecimal():
        count = int(text)
        names = [_name(number) for number in range(1, count + 1)] if 1 <= count <= MOST_NODES else []
    else:
        names = [name for name in text.split(",") if name]
    if not 1 <= len(names) <= MOST_NODES or len(set(names)) != len(names):
        raise ValueError(f"nodes {text}: write a number from 1 to {MOST_NODES}, or different names with commas")
    given = weights.split(",")
    if not all(re.fullmatch(r"[1-9]\d{0,5}", weight) for weight in given):
        raise ValueError(f"weights {weights}: write numbers from 1 to 999999 with commas, such as 1 or 1,2")
    return {name: int(given[number % len(given)]) for number, name in enumerate(names)}


def _name(number: int) -> str:
    return f"node{number:05}"


def default_changes(count: int) -> tuple[str, ...]:
    """What happens to so many nodes when nothing is said of it."""
    return ("add:1", *(("remove:1",) if count > 1 else ()), *(("remove:5",) if count > 10 else ()))


def change(text: str) -> Change:
    """add:K, remove:K or resize:N."""
    found = re.fullmatch(r"(add|remove|resize):([1-9]\d{0,4})", text)
    if found is None:
        raise ValueError(f"change {text}: write add:K, remove:K or resize:N with numbers from 1, such as remove:5")
    kind, count = found[1], int(found[2])
    if kind == "add":
        return Change(text, lambda weights, _: _added(weights, count))
    if kind == "remove":
        return Change(text, lambda weights, random: _removed(weights, count, random))
    return Change(text, lambda weights, _: _resized(weights, count))


def _added(weights: Weights, count: int) -> Weights:
    """New ones weigh what the first ones do, in turn, and have names that are not taken."""
    free = (name for name in map(_name, range(1, 2 * MOST_NODES)) if name not in weights)
    given = list(weights.values())
    return weights | {next(free): given[number % len(given)] for number in range(count)}


def _removed(weights: Weights, count: int, random: Random) -> Weights:
    if count >= len(weights):
        raise ValueError(f"remove:{count}: there are only {len(weights)} nodes, and one must stay")
    gone = set(random.sample(list(weights), count))
    return {name: weight for name, weight in weights.items() if name not in gone}


def _resized(weights: Weights, count: int) -> Weights:
    """To so many: the last ones leave, or new ones come."""
    if count >= len(weights):
        return _added(weights, count - len(weights))
    return dict(list(weights.items())[:count])
