"""The hashing laboratory: schemes side by side, and what the literature says of them, measured again."""
