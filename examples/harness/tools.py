"""What the harness may call. It runs outside of the sandbox, in the process that trains."""

RULES = {
    "zorka": "write the list backwards.",
    "blimo": "put the first item last.",
    "kedlin": "sort the list.",
    "fonrax": "drop the first item.",
}


def look_up(word: str) -> str:
    """What a word means, such as `zorka means : write the list backwards.`"""
    return f"{word} means : {RULES[word]}"
