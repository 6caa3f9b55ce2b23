"""`tenure hold`: real commands, under locks on each engine."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys

import anyio
import pytest

import tenure

PATIENCE = 50
pytestmark = pytest.mark.skipif(os.name != "posix", reason="process groups: none")


@pytest.fixture(params=["sqlite", *(pytest.param(e, marks=pytest.mark.full) for e in ("redis", "postgres"))])
def each_url(request, here):
    if request.param == "sqlite":
        return f"sqlite:///{here}/tenure.db"
    server = request.getfixturevalue(f"{request.param}_server")
    return server.url if request.param == "redis" else server.url()


@pytest.fixture
def url(here):
    return f"sqlite:///{here}/tenure.db"


@pytest.fixture
def hold(start):
    """Starts `tenure hold report OPTIONS -- python -c PROGRAM`."""

    def run(program, *options, store, **more):
        program = f"import os, signal, sys, time\n{program}"
        return start(
            "hold", "report", *options, "--store", store, "--", sys.executable, "-c", program, **more
        )

    return run


def on(url, function):
    async def ask():
        async with tenure.open_store(url) as store:
            return await function(tenure.Lock(store, "report"))

    return anyio.run(ask)


async def holder(lock):
    return (await lock.holders().page()).records[0]


def test_the_command_has_the_lock_its_token_and_its_exit_code(hold, each_url, here):
    child = hold(
        "print(os.environ['TENURE_TOKEN'], flush=True); sys.stdin.read(); sys.exit(7)", store=each_url
    )
    token = int(child.stdout.readline())
    assert on(each_url, holder).token == token
    out, err = hold("print('never')", "--timeout", 0.1, store=each_url).communicate(timeout=PATIENCE)
    assert (out, "0.1 s" in err) == ("", True)
    second = hold("print(os.environ['TENURE_TOKEN'])", "--timeout", 40, store=each_url)
    child.communicate(timeout=PATIENCE)
    assert child.returncode == 7
    assert int(second.communicate(timeout=PATIENCE)[0]) > token
    assert second.returncode == 0
    assert not on(each_url, lambda lock: lock.locked())


def test_a_lock_that_is_lost_kills_the_group_of_the_command(hold, each_url, here, until):
    forks = "child = os.fork()\nos.write(1, b'%d\\n' % os.getpid())\ntime.sleep(1000)"
    child = hold(forks, store=each_url)
    pids = [int(child.stdout.readline()) for _ in range(2)]

    async def breaks(lock):
        assert await lock.break_holder((await holder(lock)).token)

    on(each_url, breaks)
    _, err = child.communicate(timeout=PATIENCE)  # also until its last process has closed the pipe
    assert child.returncode == 125
    assert err.endswith("\ntenure: tenure:lock:report: lost (broken)\n")
    until(lambda: not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in pids))


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        signal.SIGHUP,
        *(pytest.param(number, marks=pytest.mark.full) for number in (signal.SIGINT, signal.SIGUSR1)),
    ],
)
def test_signals_go_to_the_command(hold, url, number):
    handled = "signal.signal({0}, lambda *_: sys.exit(3))\nprint(1, flush=True)\ntime.sleep(1000)"
    for program, code in (
        (handled, 3),
        (handled.replace("lambda *_: sys.exit(3)", "signal.SIG_DFL"), 128 + number),
    ):
        child = hold(program.format(int(number)), store=url)
        child.stdout.readline()
        child.send_signal(number)
        assert child.wait(PATIENCE) == code, child.stderr.read()
        assert not on(url, lambda lock: lock.locked())


def test_a_signal_ends_the_wait_for_the_lock(hold, command, url, until):
    first = hold("print(1, flush=True); sys.stdin.read()", store=url)
    first.stdout.readline()
    second = hold("print('never')", store=url)

    until(lambda: '"seconds"' in command("holders", "--json", "--store", url).out.partition('"waiting"')[2])
    second.send_signal(signal.SIGTERM)
    assert second.communicate(timeout=PATIENCE) == ("", "")
    assert second.returncode == 128 + signal.SIGTERM
    first.communicate(timeout=PATIENCE)
    assert first.returncode == 0


def test_codes_of_commands_that_do_not_run(command, here, url):
    (here / "file").write_text("not a program")
    assert [command("hold", "a", "--store", url, "--", name).code for name in ("./none", "./file")] == [
        127,
        126,
    ]
    ended = command("hold", "a", "--store", f"unix://{here}/no.sock", "--", "true")
    assert (ended.code, ended.err.count("\n")) == (125, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a"], "the command is missing: tenure hold [OPTIONS] NAME -- COMMAND"),
        (["a", "--"], "the command is missing"),
        (["--", "true"], "NAME"),
        (["a", "--ttl", "0.1", "--", "true"], "--ttl must be at least 0.5 seconds"),
        (["a", "--timeout", "never", "--", "true"], "--timeout"),
        (["a", "--store", "memory:", "--", "true"], "visible only to its own process"),
        (["tenure:lock:a", "--", "true"], "write a, the name of the lock"),
    ],
)
def test_misuse(command, words, message):
    ended = command("hold", *words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert message in ended.err


def test_the_command_has_the_terminal(url):
    program = "line = input('name? '); print('hello', line); input()"
    words = ("hold", "report", "--store", url, "--", sys.executable, "-c", program)
    pid, own = pty.fork()
    if not pid:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # execnet ignores it
        os.execv(sys.executable, [sys.executable, "-m", "tenure.cli", *words])
    shown = b""
    for end, keys in ((b"name? ", b"\x1aann\n"), (b"hello ann", b"\x03")):  # Ctrl-Z stops nothing
        while end not in shown:
            assert select.select([own], [], [], PATIENCE)[0], shown
            shown += os.read(own, 1 << 16)
        os.write(own, keys)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 128 + signal.SIGINT
    os.close(own)
