"""Commands that consist of commands: `tenure queue`, `tenure schedule`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ._errors import UsageError

Commands = Mapping[str, Callable[[Sequence[str]], int]]


def run_one(of: str, commands: Commands, usage: str, words: Sequence[str]) -> int:
    """Run the command that the first word names, or print the usage. Raises what it raises, `UsageError`."""
    match words:
        case ["--help" | "-h", *_]:
            print(usage)
            return 0
        case [str(name), *arguments] if name in commands:
            return commands[name](arguments)
        case [str(name), *_]:
            raise UsageError(f"there is no command '{of} {name}'; choose from {', '.join(commands)}")
        case _:
            raise UsageError(f"a command is missing: tenure {of} ls (see tenure {of} --help)")
