import pytest

from controller.config_sections import TcpCheck
from controller.model import Verdict
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
