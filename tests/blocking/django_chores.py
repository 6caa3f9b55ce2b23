"""Tasks of Django for the tests; Django has to be set up before this is imported."""

import os
import signal

from django.db import connection
from django.tasks import task

import tenure

done = []


@task
def add(a, b=1):
    done.append((a, b))
    return a + b


@task(takes_context=True)
async def whoami(context, word):
    return [context.task_result.id, context.attempt, word]


@task
def fail(message):
    raise LookupError(message)


@task
def leave():
    raise SystemExit("bye")


@task
def set_of(n):
    return {n}


@task(takes_context=True)
def succeed_at(context, attempt):
    if context.attempt < attempt:
        raise OSError(f"attempt {context.attempt}")
    return context.attempt


@task
def discard():
    raise tenure.Discard("no use")


@task
def end_the_worker():
    os.kill(os.getpid(), signal.SIGTERM)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
