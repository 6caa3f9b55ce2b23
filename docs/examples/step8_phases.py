"""Step 8: first all download, then all count, then all rank: no party begins a phase before all have ended the last."""

import sys

import anyio

import tenure

TEXTS = {f"page {n}": "word " * n for n in range(12)}
PARTIES = 3


async def work(store: tenure.Store, party: int, texts: dict[str, str], counts: dict[str, int]) -> None:
    """Do one party's share of each phase."""
    phases = tenure.Barrier(store, "step8 phases", PARTIES)
    mine = sorted(TEXTS)[party::PARTIES]
    try:
        for name in mine:
            await anyio.sleep(0.01)
            texts[name] = TEXTS[name]
        await phases.wait()
        for name in mine:
            counts[name] = len(texts[name].split())
        if (await phases.wait()).place == 0:  # one of them does what has to be done once
            print("the longest:", max(counts, key=counts.__getitem__), "of", len(counts))
    except tenure.BarrierBroken:
        print("somebody has left: no results")


async def main(where: str = "memory:") -> None:
    """Run the parties at once."""
    texts: dict[str, str] = {}
    counts: dict[str, int] = {}
    async with tenure.open_store(where) as store, anyio.create_task_group() as group:
        for party in range(PARTIES):
            group.start_soon(work, store, party, texts, counts)


if __name__ == "__main__":
    anyio.run(lambda: main(*sys.argv[2:]), backend=sys.argv[1] if len(sys.argv) > 1 else "asyncio")
