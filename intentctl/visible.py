"""Texts from outside, made harmless to the terminal that shows them. Pure."""


def visible(text: str) -> str:
    """One line: what would steer a terminal, or turn the direction of reading, is shown as its code."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def visible_lines(text: str) -> str:
    """The same for a message, whose lines stay lines."""
    return "\n".join(map(visible, text.split("\n")))
