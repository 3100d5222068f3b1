def initialize(arguments: list[str]) -> None: ...

class Bench:
    def __init__(
        self,
        traffic: str,
        flows: int,
        vips: int = 100,
        backends: int = 100,
        table_size: int = 65537,
        version: int = 4,
        size: int = 74,
        cold: bool = False,
    ) -> None: ...
    def run(self, bursts: int) -> tuple[float, float, float]: ...
    def close(self) -> None: ...
