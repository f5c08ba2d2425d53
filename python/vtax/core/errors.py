"""The errors that a user may see: each names the thing, the reason and the remedy in one line."""

from __future__ import annotations


class VtaxError(Exception):
    """Something failed; the command ends with exit code 1 and this one line."""

    exit_code = 1

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(_one_line(f"{message}; {remedy}" if remedy else message))


def _one_line(text: str) -> str:
    """The text without line breaks or control characters: messages quote users and guests."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class MisuseError(VtaxError):
    """The command line asks for something that cannot be; exit code 2."""

    exit_code = 2


class SessionOverError(VtaxError):
    """What the machines of an environment stand on is over, and is not asked for again."""
