"""Jobs with the task, and with arguments and results of the annotated types."""

from __future__ import annotations

import enum
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import anyio
import msgspec
import pydantic
import pytest
import workers

import tenure
from tenure import Job, Retry, Task, TaskFailed, Worker, WorkQueue

if TYPE_CHECKING:
    from nowhere import Unknown


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    at: datetime


class User(pydantic.BaseModel):
    name: str
    born: datetime | None = None


class Mail(msgspec.Struct):
    to: str
    ids: set[int] = msgspec.field(default_factory=set)


class Foreign:
    pass


NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


async def work_off(job):
    worker = Worker(job)
    await workers.work_off(job.queue, worker)
    return worker.statistics()


async def first(task: Task[Any], to: str) -> list[Any]:
    return [task.id, task.attempt, to]


def anywhere(to: str, *rest: int, task: tenure.Task, late: bool = False) -> list[Any]:
    return [task.id, to, list(rest), late]


@pytest.mark.parametrize("function", [first, anywhere])
async def test_a_parameter_for_the_task_is_filled_in_by_the_worker(store, function):
    job = Job(WorkQueue(store, "mail"), function)
    with pytest.raises(TypeError, match="cannot be called with these arguments"):
        await job.put(to="ann", task=1)
    task_id = await job.put("ann")
    assert (await job.queue.get(task_id)).payload == {"to": "ann"}
    assert (await work_off(job)).done == 1
    assert (await job.result(task_id))[0] == task_id
    assert "task" not in repr(job)


async def page(number: int) -> Point:
    return Point(number, NOON)


async def test_the_results_of_children_that_are_calls_of_a_job_are_of_its_type(store):
    pages, books = Job(WorkQueue(store, "pages"), page), WorkQueue(store, "books")
    seen = []

    async def book(task: Task[str]):
        async with task.children(pages) as children:
            for number in range(2):
                await children.put(number)
        seen.extend(child.result for child in children)

    await books.put("Emma")
    async with anyio.create_task_group() as group:
        for worker in (Worker(books, book), Worker(pages)):
            group.start_soon(worker.run)
        await books.join()
        group.cancel_scope.cancel()
    assert seen == [Point(0, NOON), Point(1, NOON)]


def many(
    user: User, mail: Mail, points: list[Point], at: datetime, uuid: UUID, price: Decimal, colour: Colour,
    pair: tuple[int, str], *more: Point, plain: dict[str, float] | None = None, word: Literal["a", 1] = 1,
    later: Unknown = None, **users: User,
) -> list[Point]:  # fmt: skip
    assert isinstance(user, User) and isinstance(mail, Mail)
    assert (at, uuid, price, colour, pair) == (NOON, UUID(int=1), Decimal("1.50"), Colour.RED, (1, "a"))
    assert (plain, word, later, users) == ({"a": 1}, "a", {"any": [1]}, {"ann": User(name="ann", born=NOON)})
    assert mail.ids == {1, 2}
    return [*points, *more]


async def test_arguments_and_results_have_the_annotated_types(store):
    job = Job(WorkQueue(store, "typed", retry=Retry(attempts=1)), many)
    task_id = await job.put(
        *(User(name="bob"), Mail("ann", {1, 2}), [Point(1, NOON)], NOON, UUID(int=1), Decimal("1.50")),
        *(Colour.RED, (1, "a"), Point(2, NOON), Point(3, NOON)),
        plain={"a": 1},
        word="a",
        later={"any": [1]},
        ann=User(name="ann", born=NOON),
    )
    assert (await work_off(job)).done == 1, (await job.queue.get(task_id)).error
    assert await job.result(task_id) == [Point(1, NOON), Point(2, NOON), Point(3, NOON)]
    assert (await job.queue.result(task_id))[0] == {"x": 1, "at": "2026-11-28T12:00:00Z"}


async def send(to: str, at: datetime = NOON, points: list[Point] = (), n: float = 0) -> Point | None:
    return None if to == "ann" else to  # what type checkers refuse


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"to": 1}, TypeError, "to must be str, not 1"),
        ({"to": "ann", "n": "1"}, TypeError, "n must be float, not '1'"),
        ({"to": "ann", "at": "noon"}, ValueError, "at must fit datetime: "),
        ({"to": "ann", "points": [User(name="bob")]}, ValueError, "points must fit list"),
    ],
)
async def test_a_value_that_does_not_fit_is_refused_at_once_and_in_a_worker(store, arguments, error, message):
    job = Job(WorkQueue(store, "mail", retry=Retry(attempts=1)), send)
    with pytest.raises(error, match=rf"^send\(.* cannot be called with these arguments: {message}"):
        await job.put(**arguments)
    assert (await job.queue.statistics()).put == 0
    if arguments.get("points") is None:
        task_id = await job.queue.put(arguments)  # as an older version of the program does
        assert (await work_off(job)).dead == 1
        with pytest.raises(TaskFailed, match=rf"Error: send\(.* cannot be called .*: {message}"):
            await job.result(task_id)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_a_result_that_does_not_fit(store):
    job = Job(WorkQueue(store, "mail"), send)
    nothing, wrong = await job.put("ann"), await job.put("bob")
    assert (await work_off(job)).dead == 1  # at once: its work is done
    assert await job.result(nothing) is None
    with pytest.raises(TaskFailed, match=r"send returned str, which cannot be the result: it must fit "):
        await job.result(wrong)
    other = await job.queue.put({"to": "ann"})
    async with job.queue.take() as task:
        task.set_result("of an older version")
    with pytest.raises(ValueError, match=rf"^the result of task {other} of send must fit "):
        await job.result(other)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_a_queue_with_a_codec_of_its_own_has_the_arguments_as_they_are(store):
    queue = WorkQueue(store, "pages", codec=tenure.PydanticCodec(dict[str, User]))
    job = Job(queue, greet)
    task_id = await job.put(User(name="ann"))
    await work_off(job)
    assert await job.result(task_id) == "ann"


def greet(user: User) -> str:
    return user.name


def of_tasks(tasks: list[Task[Any]]) -> None: ...
def of_foreign(one: Foreign) -> None: ...
def to_foreign() -> Foreign: ...


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
async def test_what_no_job_can_have(store):
    queue = WorkQueue(store, "mail")
    with pytest.raises(TypeError, match="of_tasks: its parameter tasks is for a list of tasks"):
        Job(queue, of_tasks)
    with pytest.raises(TypeError, match=r"of_foreign: its parameter one is .*Foreign.*, of which nothing"):
        Job(queue, of_foreign)
    with pytest.raises(TypeError, match=r"to_foreign: its result is .*Foreign.*, of which nothing"):
        Job(queue, to_foreign)
    with pytest.raises(TypeError, match=r'anywhere: executor="process" has no task.*leave out .* task'):
        Worker(Job(queue, anywhere), executor="process")


def test_without_a_library_the_types_of_json_work_and_others_name_the_extras():
    program = (
        "import sys; sys.modules['pydantic'] = sys.modules['msgspec'] = None\n"
        "import anyio, tenure, datetime\n"
        "def plain(a: int, b: list[str] | None = None) -> dict[str, int]: ...\n"
        "def typed(a: int, at: datetime.datetime) -> None: ...\n"
        "async def main():\n"
        "    async with tenure.open_store('memory:') as store:\n"
        "        queue = tenure.WorkQueue(store, 'q')\n"
        "        await tenure.Job(queue, plain).put(1, ['a'])\n"
        "        tenure.Job(queue, typed)\n"
        "anyio.run(main)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: typed: its parameter at is <class 'datetime.datetime'>, which needs pydantic or msgspec: "
        "pip install 'tenure[pydantic]' or 'tenure[msgspec]'"
    )
