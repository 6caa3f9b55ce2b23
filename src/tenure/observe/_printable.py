"""Texts from strangers, made safe for terminals and logs."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text on one line, with control and bidi characters and lone surrogates as `repr` shows them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """The lines of the text, each as `printable` makes it and indented, so that none looks like a line of a log."""
    return "\n".join(f"  {printable(line)}" for line in text.removesuffix("\n").split("\n"))
