"""Exact shares: how many of a number of places each weight gets."""

from collections.abc import Sequence


def quotas(weights: Sequence[int], places: int) -> list[int]:
    """Shares of `places` by weight, rounded by largest remainder, ties to the earlier one; their sum is `places`."""
    total = sum(weights)
    shares = [divmod(places * weight, total) for weight in weights]
    left = places - sum(share for share, _ in shares)
    by_remainder = sorted(range(len(shares)), key=lambda position: (-shares[position][1], position))
    extra = set(by_remainder[:left])
    return [share + (position in extra) for position, (share, _) in enumerate(shares)]
