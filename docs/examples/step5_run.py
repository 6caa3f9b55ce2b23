r"""Step 5: only the handler is left. `tenure run` reads the input, keeps the queue, works, and writes the results.

Run it, in the directory of this file:
    printf 'one two three\nfour five\nsix\n' > pages.txt
    tenure run step5_run:count_words pages.txt --results words.jsonl
or, to see it without a shell: python step5_run.py [asyncio | trio] [a store]
"""

import sys
from pathlib import Path

PAGES = "one two three\nfour five\nsix\n"


def count_words(line: str) -> int:
    """Count the words of one line of the input."""
    return len(line.split())


if __name__ == "__main__":
    from tenure.cli import main

    Path("pages.txt").write_text(PAGES)
    backend = sys.argv[1] if len(sys.argv) > 1 else "asyncio"
    command = f"run step5_run:count_words pages.txt --results words.jsonl --fresh --backend {backend}"
    if len(sys.argv) > 2:
        command += f" --store {sys.argv[2]}"
    code = main(command.split())
    print(Path("words.jsonl").read_text(), end="")
    sys.exit(code)
