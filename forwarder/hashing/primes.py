"""Primes, since a Maglev table's size must be one: else a skip could miss slots for ever."""


def is_prime(number: int) -> bool:
    """Whether `number` is a prime; trial division, table sizes are small."""
    if number < 4:
        return number in (2, 3)
    if number % 2 == 0:
        return False
    divisor = 3
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 2
    return True


def next_prime(number: int) -> int:
    """The smallest prime that is not below `number`."""
    candidate = max(2, number)
    while not is_prime(candidate):
        candidate += 1
    return candidate
