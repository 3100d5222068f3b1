from controller.backoff import Backoff, delay


def test_the_wait_doubles_up_to_the_cap() -> None:
    assert [delay(n, 0.5, 6.0) for n in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 6.0, 6.0]
    assert delay(10_000, 0.1, 10.0) == 10.0


def test_a_healthy_while_starts_it_over() -> None:
    backoff = Backoff(first=1.0, cap=8.0, healthy_after=30.0)
    assert [backoff.after(0.1) for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    assert backoff.after(29.9) == 8.0
    assert backoff.after(30.0) == 1.0
    assert backoff.after(0.0) == 2.0
