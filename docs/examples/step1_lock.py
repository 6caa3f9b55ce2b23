"""Step 1: several copies of a program, one summary. The copy that writes it holds a lock while it writes."""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import anyio

import tenure

TEXTS = {"a.txt": "one two three", "b.txt": "four five", "c.txt": "six"}


async def write_summary(copy: int, store: tenure.Store, folder: anyio.Path) -> None:
    """Count the words of all texts, unless another copy has done it."""
    async with tenure.Lock(store, "step1 summary").hold(timeout=5) as lease:
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
    """Run three copies at once."""
    with tempfile.TemporaryDirectory() as name:
        for text, words in TEXTS.items():
            (Path(name) / text).write_text(words)
        async with tenure.open_store(where) as store, anyio.create_task_group() as group:
            for copy in range(3):
                group.start_soon(write_summary, copy, store, anyio.Path(name))
        print((Path(name) / "summary").read_text(), end="")


if __name__ == "__main__":
    backend = sys.argv[1] if len(sys.argv) > 1 else "asyncio"
    if backend == "trio" and find_spec("trio") is None:
        sys.exit("trio is not installed: pip install 'tenure[trio]'")
    anyio.run(lambda: main(*sys.argv[2:]), backend=backend)
