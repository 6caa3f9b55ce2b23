"""The backend for Django's tasks: the scenarios of Django's own tests of its backends, with a worker of ours."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta

import anyio
import pytest
import variants
from needed import NO_DJANGO

import tenure

try:
    from django.tasks import signals, task_backends
except ImportError:
    pytest.skip(NO_DJANGO, allow_module_level=True)

import django
from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.tasks.exceptions import (
    InvalidTask,
    InvalidTaskBackend,
    TaskResultDoesNotExist,
    TaskResultMismatch,
)
from django.test import override_settings
from django.utils import timezone

if not settings.configured:
    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(INSTALLED_APPS=["tenure.django"], USE_TZ=True, DATABASES={"default": memory})
    django.setup()

import django_chores as chores

from tenure.django import TenureBackend
from tenure.django._backend import opened


def backend(store, **options):
    return {"BACKEND": "tenure.django.TenureBackend", "OPTIONS": {"store": store, **options}}


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/tasks.db"


@pytest.fixture
def tasks(url):
    """The backend over a file; with three tries, "retrying" as well."""
    retry = tenure.Retry(attempts=3, backoff=0)
    both = {
        "default": {**backend(url), "QUEUES": ["default", "mails"]},
        "retrying": backend(url, namespace="retrying", queue={"retry": retry}),
        "small": backend(url, namespace="small", queue={"max_size": 1}),
    }
    with override_settings(TASKS=both):
        yield task_backends["default"]
        for alias in both:
            task_backends[alias]._store.close()
    opened.cache_clear()


async def until_done(alias, queue_name):
    tasks = task_backends[alias]
    async with tenure.open_store(**tasks.store_options) as store, anyio.create_task_group() as group:
        group.start_soon(tasks.worker(store, queue_name, concurrency=1).run)
        with anyio.fail_after(50):
            while (now := tasks._queue(queue_name).statistics()).waiting or now.leased:
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()


@pytest.fixture
def work(request, tasks):
    """A function that works until nothing waits."""

    def work(alias="default", queue_name="default"):
        anyio.run(until_done, alias, queue_name, backend=variants.loop_of(request.node))

    return work


def test_a_task_is_ready_and_then_successful(tasks, work):
    before = timezone.now()
    result = chores.add.enqueue(3, b=4)
    assert (result.status, result.attempts, result.is_finished) == ("READY", 0, False)
    assert result.enqueued_at >= before and result.started_at is result.finished_at is None
    assert result == chores.add.get_result(result.id)
    with pytest.raises(ValueError, match="has not finished"):
        result.return_value  # noqa: B018
    work()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 7, 1)
    assert (result.task, result.args, result.kwargs) == (chores.add, [3], {"b": 4})
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
    assert chores.add.get_result(result.id) == result and result.errors == []


@pytest.mark.backends("asyncio")  # as all asynchronous code of Django
async def test_a_coroutine_function_gets_its_context(tasks, work):
    result = await chores.whoami.aenqueue("me")
    await anyio.to_thread.run_sync(work)
    await result.arefresh()
    assert (await chores.whoami.aget_result(result.id)).return_value == [result.id, 1, "me"]


@pytest.mark.parametrize(
    ("chore", "arguments", "kind", "text"),
    [
        (chores.fail, ["gone"], LookupError, "LookupError: gone\n"),
        (chores.leave, [], SystemExit, "SystemExit: bye\n"),
        (chores.set_of, [1], TypeError, "Unsupported type: <class 'set'>\n"),
    ],
)
def test_a_task_that_fails_says_why(tasks, work, caplog, chore, arguments, kind, text):
    result = chore.enqueue(*arguments)
    work()
    result.refresh()
    assert (result.status, result.attempts, result.is_finished) == ("FAILED", 1, True)
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018
    (error,) = result.errors
    assert error.exception_class is kind and error.traceback.endswith(text)
    assert result.started_at <= result.finished_at
    said = [record for record in caplog.records if record.name == "django.tasks"][-1]
    assert (said.levelno, said.exc_info[0]) == (logging.ERROR, kind) and result.id in said.message


def test_tries_that_failed_are_listed_and_signals_come_once(tasks, work):
    came = []

    def note(signal, task_result, **_):
        came.append((signal, task_result.status, task_result.attempts))

    kinds = (signals.task_enqueued, signals.task_started, signals.task_finished)
    for kind in kinds:
        kind.connect(note)
    try:
        result = chores.succeed_at.using(backend="retrying").enqueue(3)
        work("retrying")
    finally:
        for kind in kinds:
            kind.disconnect(note)
    result.refresh()
    assert (result.return_value, result.attempts, len(set(result.worker_ids))) == (3, 3, 1)
    assert [error.traceback.rpartition("OSError: ")[2] for error in result.errors] == [
        "attempt 1\n",
        "attempt 2\n",
    ]
    assert result.started_at < result.last_attempted_at < result.finished_at
    assert came == [
        (signals.task_enqueued, "READY", 0),
        *((signals.task_started, "RUNNING", n) for n in (1, 2, 3)),
        (signals.task_finished, "SUCCESSFUL", 3),
    ]


def test_urgent_tasks_come_first_and_deferred_ones_wait(tasks, work):
    chores.done.clear()
    tomorrow = timezone.now() + timedelta(days=1)
    later = chores.add.using(run_after=tomorrow).enqueue(0)
    chores.add.enqueue(1)
    chores.add.using(priority=100).enqueue(2)
    chores.add.using(run_after=timezone.now() - timedelta(days=1)).enqueue(3)
    chores.add.using(queue_name="mails", priority=100).enqueue(4)
    work()
    assert chores.done == [(2, 1), (1, 1), (3, 1)]
    later.refresh()
    assert later.status == "READY" and chores.add.get_result(later.id).task.run_after == tomorrow
    work(queue_name="mails")
    assert chores.done[3:] == [(4, 1)]


def test_a_task_that_ends_without_a_failed_try_has_failed(tasks, work):
    cancelled, discarded = chores.add.enqueue(1), chores.discard.enqueue()
    tasks._queue("default").cancel(int(cancelled.id.partition(":")[2]))
    work()
    for result, kind in ((cancelled, tenure.TaskCancelled), (discarded, tenure.TaskFailed)):
        result.refresh()
        assert result.status == "FAILED" and result.finished_at is not None
        assert [error.exception_class for error in result.errors] == [kind]


def test_unknown_results_do_not_exist(tasks):
    mine = chores.add.enqueue(1)
    with pytest.raises(TaskResultMismatch):
        chores.fail.get_result(mine.id)
    for result_id in ("default:999", "other:1", "default:x", "default:0", "1", "", 7):
        with pytest.raises(TaskResultDoesNotExist):
            tasks.get_result(result_id)


def test_wrong_tasks_are_refused_and_nothing_is_put(tasks):
    with pytest.raises(TypeError, match="Unsupported type"):
        chores.add.enqueue(timezone.now())
    with pytest.raises(InvalidTask, match="Queue 'other' is not valid"):
        chores.add.using(queue_name="other")
    with pytest.raises(InvalidTask, match="whole number between"):
        chores.add.using(priority=101)
    with pytest.raises(InvalidTask, match="aware"):
        chores.add.using(run_after=timezone.now().replace(tzinfo=None))
    small = chores.add.using(backend="small")
    small.enqueue(1)
    with pytest.raises(tenure.QueueFull):
        small.enqueue(2)
    assert tasks._queue("default").statistics().put == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"store": "nonsense"}, "is not a store URL"),
        ({"store": "memory:", "colour": 1}, "colour"),
        ({"store": "memory:", "namespace": "a:b"}, "namespace must not have a colon"),
        ({"store": "memory:", "queue": {"max_size": 0}}, "max_size must be at least 1"),
        ({"store": "memory:", "queue": {"hue": 1}}, "hue"),
        ({"store": "memory:", "queue": 1}, "not a mapping"),
        ({"store": "memory:", "database": "other"}, "other"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(InvalidTaskBackend, match=words) as raised:
        TenureBackend("mine", {"OPTIONS": options})
    assert str(raised.value).startswith("TASKS['mine']['OPTIONS']: ")


def test_a_queue_has_a_short_name(tasks):
    with override_settings(TASKS={"default": {**backend("memory:"), "QUEUES": []}}):
        chores.add.using(queue_name="q" * 43)
        for wrong in ("q" * 44, ""):
            with pytest.raises(InvalidTask, match="1 to 43 characters"):
                chores.add.using(queue_name=wrong)


@pytest.fixture
def database(tmp_path, monkeypatch):
    """A database in a file: Django closes no connection to a database in memory."""
    file = tmp_path / "shop.db"
    databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": file}}
    monkeypatch.setattr(connections, "settings", connections.configure_settings(databases))
    here = connections["default"]
    del connections["default"]
    yield file
    connections.close_all()
    connections["default"] = here


@pytest.fixture
def prepared(database):
    """The backend over the file of Django, which a process has made as the file of a store."""

    async def open_once():
        async with tenure.open_store(f"sqlite:///{database}"):
            pass

    anyio.run(open_once)
    with connections["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE sale (id integer)")
    with override_settings(TASKS={"default": backend(f"sqlite:///{database}", database="default")}):
        yield task_backends["default"]
        task_backends["default"]._store.close()
    opened.cache_clear()


def sell():
    with connections["default"].cursor() as cursor:
        cursor.execute("INSERT INTO sale VALUES (1)")


@pytest.mark.parametrize("mode", [None, "IMMEDIATE", "EXCLUSIVE"])
def test_the_first_task_of_a_process_is_enqueued_within_a_transaction(prepared, mode):
    """Opening the store would wait for the lock that the caller has."""
    connections["default"].settings_dict["OPTIONS"] = {"transaction_mode": mode}
    for failing in (False, True):
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            sell()
            chores.add.enqueue(1)
            if failing:
                1 / 0  # noqa: B018
    assert prepared._queue("default").statistics().put == 1


def test_without_autocommit_a_task_is_enqueued_by_the_commit(prepared):
    transaction.set_autocommit(False)
    for end in (transaction.rollback, transaction.commit):
        sell()
        chores.add.enqueue(1)
        end()
    transaction.set_autocommit(True)
    assert prepared._queue("default").statistics().put == 1


@pytest.mark.parametrize("name", ["{0}", "file:{0}?mode=rw", "{0.parent}/./link.db"])
def test_the_file_of_django_has_to_be_named(database, name):
    """`enqueue` within `atomic` would wait for its own transaction for ever."""
    (database.parent / "link.db").symlink_to(database)
    connections["default"].settings_dict["NAME"] = name.format(database)
    options = {"store": f"sqlite:///{database}"}
    with pytest.raises(InvalidTaskBackend, match="write 'database': 'default'"):
        TenureBackend("mine", {"OPTIONS": options})
    TenureBackend("mine", {"OPTIONS": {**options, "database": "default"}})
    TenureBackend("mine", {"OPTIONS": {"store": f"sqlite:///{database}.other"}})


def test_a_task_of_a_transaction_is_enqueued_by_its_commit(database):
    with override_settings(TASKS={"default": backend(f"sqlite:///{database}", database="default")}):
        tasks = task_backends["default"]
        try:
            tasks._store.ping()
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                chores.add.enqueue(1)
                1 / 0  # noqa: B018
            with transaction.atomic():
                kept = chores.add.enqueue(2)
            outside = chores.add.enqueue(3)
            assert [kept.status, outside.status] == ["READY", "READY"]
            assert tasks._queue("default").statistics().put == 2
            assert chores.add.get_result(kept.id).args == [2]
        finally:
            tasks._store.close()
            opened.cache_clear()


def test_the_command_works_until_a_signal_comes(tasks, database, capsys):
    result = chores.end_the_worker.enqueue()
    call_command("tenure_worker", "--concurrency", "2")
    result.refresh()
    assert result.status == "SUCCESSFUL"
    assert "works on default, mails of sqlite:" in capsys.readouterr().err


def test_the_command_says_what_is_wrong(tasks, url):
    with override_settings(
        TASKS={
            "default": backend("memory:"),
            "dummy": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"},
            "any": {**backend(url), "QUEUES": []},
        }
    ):
        for words, problem in (
            ([], "memory: is visible only to its own process"),
            (["--backend", "dummy"], r"TASKS\['dummy'\] is no tenure.django.TenureBackend"),
            (["--backend", "any"], "--queue is missing"),
            (["--backend", "any", "--queue", "q", "--concurrency", "0"], "concurrency must be at least 1"),
        ):
            with pytest.raises(CommandError, match=problem):
                call_command("tenure_worker", *words)
