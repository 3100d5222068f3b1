import pytest

from controller.model import Verdict
from controller.probes.tcp import TcpCheck
from controller.warmup import grace, is_warm


def test_warm_is_when_every_check_has_a_verdict() -> None:
    assert is_warm([])
    assert is_warm([Verdict.UP, Verdict.DOWN])
    assert not is_warm([Verdict.UP, Verdict.UNKNOWN])


def test_the_slowest_check_sets_the_grace() -> None:
    fast = TcpCheck.model_validate({"type": "tcp", "port": 1})
    slow = TcpCheck.model_validate({"type": "tcp", "port": 1, "interval": "5s", "rise": 4, "timeout": "2s"})
    assert grace([]) == 0.0
    assert grace([fast]) == pytest.approx(4 * 1.0 + 0.5)
    assert grace([fast, slow]) == pytest.approx(5 * 5.0 + 2.0)


def test_what_is_in_doubt_is_known_sooner_with_a_fast_interval() -> None:
    settings = {"type": "tcp", "port": 1, "interval": "5s", "fast_interval": "1s", "rise": 2, "fall": 3}
    assert grace([TcpCheck.model_validate(settings)]) == pytest.approx(4 * 1.0 + 0.5)
    slow = TcpCheck.model_validate(settings | {"timeout": "2500ms"})  # each probe takes three beats
    assert grace([slow]) == pytest.approx((3 * 3 + 1) * 1.0 + 2.5)
