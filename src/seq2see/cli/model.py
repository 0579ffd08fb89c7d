def describe() -> None:
    pass
