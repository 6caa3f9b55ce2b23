"""After a fork: the child has a connection of its own, whatever the parent was doing."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import os, sys, threading, time, tenure
from tenure import blocking

store = blocking.open_store(sys.argv[1])
queue, lock = blocking.WorkQueue(store, "mail"), blocking.Lock(store, "report")

def child(function):
    pid = os.fork()
    if not pid:
        try:
            function()
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def run(url, code):
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore:This process:DeprecationWarning",
            "-c",
            PRELUDE + code,
            url,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_store_that_was_not_used_yet_is_opened_in_each_child(process_url):
    run(
        process_url,
        """
for _ in range(2):
    child(lambda: queue.put(1))
assert queue.statistics().waiting == 2
""",
    )


def test_a_child_opens_another_connection_than_its_parent(server_url):
    run(
        server_url,
        """
queue.put("parent")
process = store.statistics().process

def work():
    assert store.statistics().process != process
    queue.put("child")
    with lock.hold(timeout=20):
        pass
    child(lambda: queue.put("grandchild"))

child(work)
with lock as lease:
    child(lambda: queue.put("child"))
    lease.check()
assert queue.statistics().waiting == 4
assert store.statistics().process == process
store.close()
""",
    )


def test_a_child_that_is_forked_while_threads_call_does_not_hang(server_url):
    run(
        server_url,
        """
go_on = True

def call():
    # not puts: in time they would fill the queue, and the children would wait for room
    while go_on:
        with lock:
            pass

threads = [threading.Thread(target=call) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(10):
    child(lambda: queue.put("child"))
go_on = False
for thread in threads:
    thread.join()
assert queue.verify().problems == ()
assert queue.statistics().waiting == 10
""",
    )


def test_a_child_does_not_have_what_its_parent_holds(server_url):
    run(
        server_url,
        """
def refused(function, error, text):
    try:
        function()
    except error as problem:
        assert text in str(problem), problem
    else:
        raise AssertionError("not refused")

block = lock.hold()
lease = block.__enter__()

def work():
    refused(lease.check, RuntimeError, "belongs to the parent")
    refused(lambda: block.__exit__(None, None, None), RuntimeError, "belongs to the parent")
    assert block.__exit__(SystemExit, SystemExit(), None) is None
    refused(lambda: lock.hold(timeout=0).__enter__(), tenure.AcquireTimeout, "not acquired")

child(work)
lease.check()
block.__exit__(None, None, None)
child(lambda: lock.hold(timeout=20).__enter__())
""",
    )


def test_a_child_may_end_as_any_process(server_url):
    """Its parent's portal is not its to end."""
    run(
        server_url,
        """
queue.put(1)
pid = os.fork()
if pid:
    assert os.waitpid(pid, 0)[1] == 0
queue.put(2)
""",
    )


def test_an_open_file_of_sqlite_is_not_opened_by_a_child(tmp_path):
    run(
        f"sqlite:///{tmp_path}/it.db",
        """
queue.put(1)

def work():
    try:
        queue.put(2)
    except tenure.EngineError as problem:
        assert "was open in the parent when this process was forked" in str(problem)
    else:
        raise AssertionError("not refused")

child(work)
queue.put(3)
store.close()
store = blocking.open_store(sys.argv[1])
queue = blocking.WorkQueue(store, "mail")
child(lambda: queue.put(4))
assert queue.statistics().waiting == 3
""",
    )


def test_a_module_that_the_loop_is_importing_is_whole_in_a_child(server_url, tmp_path):
    path = tmp_path / "imported_late.py"
    path.write_text("import time\nbegun.set()\ntime.sleep(0.3)\nname = 'ann'\n", "utf-8")
    run(
        server_url,
        f"""
sys.path.insert(0, {str(tmp_path)!r})
import builtins
builtins.begun = threading.Event()

class Late:
    def encode(self, value):
        from imported_late import name
        return name.encode()

    def decode(self, data):
        return data.decode()

late = blocking.WorkQueue(store, "late", codec=Late())
thread = threading.Thread(target=late.put, args=(1,))
thread.start()
assert begun.wait(20)
child(lambda: late.put(2))
thread.join()
assert late.statistics().waiting == 2
""",
    )
