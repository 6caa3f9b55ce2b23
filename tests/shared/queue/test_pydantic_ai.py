"""Runs of agents of pydantic-ai, whose calls are steps of a task."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest
from needed import NO_PYDANTIC_AI

import tenure

try:
    import pydantic_ai  # noqa: F401
except ImportError:
    pytest.skip(NO_PYDANTIC_AI, allow_module_level=True)

from tenure.pydantic_ai import durable

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "use-in-pydantic-ai.md"
pytestmark = pytest.mark.backends("asyncio")


@pytest.fixture
def program():
    code = re.search(
        r"^```python pydantic-ai\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )[1]
    exec(compile(code, "<block>", "exec"), names := {"__name__": "block"})
    return names


async def test_the_program_of_the_page_asks_once_in_two_tries(program, capsys):
    with anyio.fail_after(50):
        await program["main"]()
    assert (
        capsys.readouterr().out == "order 7 is refunded\n2 calls of the model, 1 of the tool, in two tries\n"
    )


async def test_without_a_task_an_agent_runs_as_without_the_backend(program):
    for _ in range(2):
        assert (await program["agent"].run("again")).output == "order 7 is refunded"
    assert (len(program["asked"]), program["booked"]) == (4, [7, 7])


async def test_two_runs_in_a_block_have_steps_of_their_own(program):
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "runs", retry=tenure.Retry(attempts=2, backoff=0))
        await queue.put("hello")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                async with queue.take() as task:
                    with durable(task):
                        for _ in range(2):
                            await program["agent"].run(task.payload)
                    1 / 0  # noqa: B018
    assert (len(program["asked"]), program["booked"]) == (4, [7, 7])


async def test_what_an_agent_works_in_is_undone_when_its_task_ends(program):
    destroyed = []

    async def handle(task: tenure.Task[str]):
        if task.thing:
            destroyed.append(task.payload)
            return
        release = await task.at_end("sandbox")
        with durable(task):
            task.set_result((await program["agent"].run(f"work in {release.thing}")).output)
        assert not destroyed

    async with tenure.open_store("memory:") as store, anyio.create_task_group() as group:
        queue = tenure.WorkQueue(store, "runs")
        group.start_soon(tenure.Worker(queue, handle).run)
        with anyio.fail_after(50):
            await queue.result(await queue.put("pull"))
        group.cancel_scope.cancel()
    assert len(destroyed) == 1


async def test_misuse_is_named():
    with pytest.raises(TypeError, match=r"task must be a tenure.Task, not int"), durable(7):
        pass
    async with tenure.open_store("memory:") as store:
        queue = tenure.WorkQueue(store, "runs")
        await queue.put(1)
        async with queue.take() as task:
            with durable(task), pytest.raises(RuntimeError, match="entered before"), durable(task):
                pass
