"""Real processes that put with one key and are killed: the last payload is done, and what is put once has one id."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from pathlib import Path

import anyio
import depth
import pytest

import tenure

CHILD = Path(__file__).with_name("key_child.py")
PATIENCE = 50  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_loop]


@pytest.fixture(params=("sqlite", "redis"))
def url(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_server").url
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def start(url, tmp_path, anyio_backend_name):
    """Starts a process, whose lines go to a file; it gives the function that ends it."""
    with contextlib.ExitStack() as stack:

        def run(what, name):
            output = stack.enter_context((tmp_path / f"{what} {name}").open("w"))
            child = subprocess.Popen(
                [sys.executable, CHILD, anyio_backend_name, url, what, name], stdout=output
            )
            stack.callback(child.wait)
            stack.callback(child.kill)

            def end():
                child.kill()
                child.wait()

            return end

        yield run


def lines(tmp_path, what):
    """What the processes of a kind have said, line by line; a last one that was cut off is left out."""
    texts = [path.read_text() for path in tmp_path.glob(f"{what} *")]
    return [line.split() for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]


async def until(condition):
    with anyio.fail_after(PATIENCE):
        while not condition():
            await anyio.sleep(0.05)


async def test_the_last_payload_is_done_whoever_is_killed(url, start, tmp_path):
    kills = 8 if depth.full else 2
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        children = {f"{what} {n}": start(what, str(n)) for what in ("put", "work") for n in range(2)}
        await until(lambda: len(lines(tmp_path, "work")) > 5)
        for n in range(2, 2 + kills):
            victim = random.choice(list(children))
            children.pop(victim)()
            what = victim.split()[0]
            children[f"{what} {n}"] = start(what, str(n))
            seen = len(lines(tmp_path, "work"))
            await until(lambda seen=seen: len(lines(tmp_path, "work")) > seen + 2)
        for name in [name for name in children if name.startswith("put")]:
            children.pop(name)()
        await queue.put("last", key=tenure.Key("k", "replace"))
        with anyio.fail_after(PATIENCE):
            await queue.join()
        audit = await queue.verify()
        assert audit, audit
    done = [line[2] for line in sorted(lines(tmp_path, "work"), key=lambda line: int(line[1]))]
    assert done[-1] == "last"
    begun = {line[1] for line in lines(tmp_path, "put") if line[0] == "putting"}
    assert set(done) <= begun | {"last"}
    # of each producer the payloads are done in the order in which they were put
    for name in {payload.split(".")[0] for payload in done[:-1]}:
        numbers = [int(payload.split(".")[1]) for payload in done[:-1] if payload.startswith(f"{name}.")]
        assert numbers == sorted(numbers)


async def test_what_is_put_once_has_one_id_whoever_is_killed(url, start, tmp_path):
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        end_work = start("work", "0")
        children = [start("once", str(n)) for n in range(3)]
        for n in range(3, 3 + (6 if depth.full else 2)):
            seen = len(lines(tmp_path, "once"))
            await until(lambda seen=seen: len(lines(tmp_path, "once")) > seen + 5)
            children.pop(0)()
            children.append(start("once", str(n)))
        for end in children:
            end()
        with anyio.fail_after(PATIENCE):
            await queue.join()
        end_work()
        assert len({line[1] for line in lines(tmp_path, "once")}) == 1
        assert (await queue.statistics()).put == 1
    assert len(lines(tmp_path, "work")) == 1
