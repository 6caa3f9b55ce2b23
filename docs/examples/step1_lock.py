"""Step 1: several copies of a program, one summary. Whoever writes it holds a lock for as long as it writes.

Run it: python step1_lock.py [asyncio | trio] [a store, such as sqlite:///file or redis://localhost]
"""

import sys
import tempfile
from pathlib import Path

import anyio

import tenure

TEXTS = {"a.txt": "one two three", "b.txt": "four five", "c.txt": "six"}


async def write_summary(copy: int, store: tenure.Store, folder: anyio.Path) -> None:
    """Count the words of all texts and write the sum, unless another copy has done it already."""
    async with tenure.Lock(store, "summary").hold(timeout=5) as lease:
        print(f"copy {copy} holds {lease.key}, fence {lease.token}")
        summary = folder / "summary"
        if await summary.exists():
            return
        words = 0
        async for file in folder.glob("*.txt"):
            words += len((await file.read_text()).split())
        lease.check()  # right before the side effect
        await summary.write_text(f"{words} words, by copy {copy}\n")


async def main(where: str = "memory:") -> None:
    """Run three copies at once. Over a SQLite file they could as well be three processes."""
    with tempfile.TemporaryDirectory() as name:
        for text, words in TEXTS.items():
            (Path(name) / text).write_text(words)
        async with tenure.open_store(where) as store, anyio.create_task_group() as group:
            for copy in range(3):
                group.start_soon(write_summary, copy, store, anyio.Path(name))
        print((Path(name) / "summary").read_text(), end="")


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
