"""Words for messages."""


def one_line(value: object, limit: int = 300) -> str:
    """The text of a value on one line of bearable length."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
