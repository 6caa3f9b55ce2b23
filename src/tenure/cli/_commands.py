"""Commands that consist of commands: `tenure queue`, `tenure schedule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches

from ._errors import UsageError

Commands = Mapping[str, Callable[[Sequence[str]], int]]


def run_one(of: str, commands: Commands, usage: str, words: Sequence[str]) -> int:
    match words:
        case ["--help" | "-h", *_]:
            print(usage)
            return 0
        case [str(name), *arguments] if name in commands:
            return commands[name](arguments)
        case [str(name), *_]:
            raise no_command(f"{of} {name}", name, commands)
        case _:
            raise UsageError(
                f"a command is missing: tenure {of} {next(iter(commands))} (see tenure {of} --help)"
            )


def no_command(words: str, name: str, commands: Iterable[str]) -> UsageError:
    similar = get_close_matches(name, commands, n=1)
    choose = f"did you mean {similar[0]}? There are" if similar else "choose from"
    return UsageError(f"there is no command '{words}'; {choose} {', '.join(commands)}")
