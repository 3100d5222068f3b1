"""The live flows that a change would move, counted by the forwarder, and how much of that is too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from controller.model import CheckKey, Verdict, Vip, check_keys

Json = dict[str, Any]
FLOWS = ("live", "at_risk", "moved", "lost")


def expected_verdicts(vips: Iterable[Vip], verdicts: Mapping[CheckKey, Verdict]) -> dict[CheckKey, Verdict]:
    """Those of other services, once their backends are probed: what is known stays, what is new will be healthy."""
    return {key: verdicts.get(key, Verdict.UP) for key in check_keys(vips)}


def trusting(verdicts: Mapping[CheckKey, Verdict]) -> dict[CheckKey, Verdict]:
    """Verdicts of a node that has none yet: the forwarder that it found goes on as if all were healthy."""
    return {key: Verdict.UP if verdict is Verdict.UNKNOWN else verdict for key, verdict in verdicts.items()}


def with_flows(plans: Iterable[Json], counted: Iterable[Json]) -> list[Json]:
    """The plans with what the forwarder has counted for the same vips; a vip that it has not has no flows."""
    flows = {_service(vip): {name: vip[name] for name in FLOWS} for vip in counted}
    return [vip | {"flows": flows.get(_service(vip), dict.fromkeys(FLOWS, 0))} for vip in plans]


def refusal(plans: Iterable[Json], percent: float) -> str | None:
    """The sentence that refuses a change by which more than so much of a vip would move: of its slots, or of its
    live flows where that is more. None: no vip goes beyond it."""
    worst = max(plans, key=_churn, default=None)
    if worst is None or _churn(worst) * 100 <= percent:
        return None
    figures = f"{spell(worst['share'])} of its slots"
    if (moved := _moved_flows(worst)) is not None:
        live = worst["flows"]["live"]
        figures += f" and {spell(moved / live)} of its live flows ({moved} of {live})"
    return f"vip {worst['name']}: {figures} would move, more than {percent:g} %; nothing was changed"


def spell(share: float) -> str:
    """A share in percent, not 0 for what is not nothing."""
    return f"{100 * share:.1f} %" if share == 0 or share >= 0.001 else "< 0.1 %"


def _churn(vip: Json) -> float:
    moved = _moved_flows(vip)
    return max(float(vip["share"]), 0.0 if moved is None else moved / vip["flows"]["live"])


def _moved_flows(vip: Json) -> int | None:
    """None: there are no flows, or nobody has counted. Where those that move are not known, those that are lost."""
    flows = vip.get("flows")
    if not flows or not flows["live"]:
        return None
    return int(flows["lost"] if flows["moved"] is None else flows["moved"])


def _service(vip: Json) -> tuple[str, str, int]:
    return vip["address"], vip["protocol"], vip["port"]
