"""Codecs of one type: what is put is of the type, what is taken too, and what is not is an error that says so."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import anyio
import msgspec
import pydantic
import pytest

import tenure
from tenure import Item, MsgspecCodec, PydanticCodec, Retry, TaskFailed, Worker, WorkQueue
from tenure.engines.memory import MemoryEngine


@dataclass
class Plain:
    to: str
    copies: int = 1


class Struct(msgspec.Struct):
    to: str
    copies: int = 1


class Model(pydantic.BaseModel):
    to: str
    copies: int = pydantic.Field(default=1, alias="n")

    @pydantic.computed_field
    @property
    def length(self) -> int:
        return len(self.to)


MADE = [
    (MsgspecCodec(Struct), Struct("ann", 2)),
    (MsgspecCodec(Plain), Plain("ann", 2)),
    (MsgspecCodec(dict[str, int] | None), {"a": 1}),
    (PydanticCodec(Model), Model(to="ann", n=2)),
    (PydanticCodec(Plain), Plain("ann", 2)),
    (PydanticCodec(dict[str, int] | None), {"a": 1}),
]
IDS = [repr(codec) for codec, _ in MADE]


@pytest.fixture
async def store():
    async with tenure.open_store(MemoryEngine()) as opened:
        yield opened


@pytest.mark.parametrize(("codec", "value"), MADE, ids=IDS)
async def test_what_is_taken_is_of_the_type(store, codec, value):
    queue = WorkQueue(store, "mail", codec=codec)
    await queue.put(value)
    async with queue.take() as task:
        assert task.payload == value
        assert type(task.payload) is type(value)
        task.set_result({"sent": True})
    assert await queue.result(task.id) == {"sent": True}


def spoilt(thing):
    thing.copies = "many"
    return thing


@pytest.mark.parametrize(
    ("codec", "wrong"),
    [
        (MsgspecCodec(Struct), {"to": 7}),
        (MsgspecCodec(Struct), Struct("ann", "two")),
        (MsgspecCodec(Struct), object()),
        (MsgspecCodec(Plain), ["ann"]),
        (MsgspecCodec(Plain), 2**80),
        (PydanticCodec(Model), {"to": "ann"}),
        (PydanticCodec(Model), spoilt(Model(to="ann"))),
        (PydanticCodec(Plain), spoilt(Plain("ann"))),
        (PydanticCodec(Plain), object()),
    ],
    ids=range(9),
)
async def test_what_is_not_of_the_type_is_not_put(store, codec, wrong):
    queue = WorkQueue(store, "mail", codec=codec)
    with pytest.raises((ValueError, TypeError), match="^tenure:queue:mail: the payload cannot be encoded: "):
        await queue.put(wrong)
    with pytest.raises((ValueError, TypeError), match="the payload cannot be encoded"):
        await queue.put_many([Item(wrong)])
    assert (await queue.statistics()).put == 0


@pytest.mark.parametrize("codec", [MsgspecCodec(Struct), PydanticCodec(Model)], ids=repr)
@pytest.mark.parametrize("payload", [{"to": 7}, "ann"])
async def test_what_was_put_by_another_version_fails_and_is_kept(store, codec, payload):
    task_id = await WorkQueue(store, "mail").put(payload)
    queue = WorkQueue(store, "mail", codec=codec, retry=Retry(attempts=1))

    async def handle(task: tenure.Task):
        return task.payload.to

    worker = Worker(queue, handle)
    async with anyio.create_task_group() as group:
        group.start_soon(worker.run)
        with pytest.raises(
            TaskFailed, match=rf"ValueError: .* task {task_id}: the payload cannot be decoded: "
        ):
            await queue.result(task_id)
        await worker.drain()
    (letter,) = (await queue.tasks("dead").page()).records
    assert letter.payload is None
    (letter,) = (await WorkQueue(store, "mail").tasks("dead").page()).records
    assert letter.payload == payload


async def test_bytes_that_are_no_json_are_a_value_error():
    for codec in (MsgspecCodec(Struct), PydanticCodec(Model)):
        with pytest.raises(ValueError, match=r".") as caught:
            codec.decode(b"{")
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("name", "extra"), [("MsgspecCodec", "msgspec"), ("PydanticCodec", "pydantic")])
def test_without_the_extra_one_error_names_it(name, extra):
    program = f"import sys; sys.modules[{extra!r}] = None; import tenure; tenure.{name}(int)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ran.stderr.splitlines()[-1]
    assert last == f"ModuleNotFoundError: {extra} is missing: pip install 'tenure[{extra}]'"


def test_the_codecs_load_nothing_before_they_are_made():
    program = "import sys, tenure; tenure.MsgspecCodec; print({'msgspec', 'pydantic'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"
