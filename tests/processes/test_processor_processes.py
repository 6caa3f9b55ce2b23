"""Processes of one processor, killed, frozen and told to end. With 200 kills: `python -m benchmarks.soak processor`."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure
from benchmarks.soak.referees import History

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.soak.processor_fleet import ProcessorFleet
from benchmarks.soak.processor_referee import strandings
from benchmarks.soak.processor_soak import AOF
from benchmarks.soak.processor_trial import ProcessorTrial

CHILD = Path(__file__).with_name("processor_child.py")
GRACE = 0.5
PATIENCE = 50  # seconds; never waited for when all is well

pytestmark = [pytest.mark.timeout(240), pytest.mark.one_loop]


# ------------------------------------------------------------------------------------------------------- in one trial


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    fleet = ProcessorFleet(tmp_path_factory.mktemp("fleet"))
    yield fleet
    fleet.close()


@pytest.mark.backends("asyncio")
@pytest.mark.full
async def test_on_a_file_nothing_is_lost_nor_done_twice_nor_left(fleet, tmp_path):
    trial = ProcessorTrial(None, fleet, tmp_path, random.Random(), loops=("asyncio",), slack=PATIENCE)
    verdict = await trial.run(6, "drain", "kill_all", "freeze_process", "kill_draining")
    assert verdict.violations == []
    assert verdict.seen["stranded"]


@pytest.mark.backends("asyncio")
async def test_on_a_server_nothing_is_lost_nor_done_twice_nor_left(fleet, own_redis_server, tmp_path):
    server = own_redis_server(*AOF)
    for _ in range(3):  # now and then, all were killed between two tasks
        trial = ProcessorTrial(server, fleet, tmp_path, random.Random(), loops=("trio",), slack=PATIENCE)
        verdict = await trial.run(6, "drain", "kill_all", "restart_server", "kill_without_server")
        assert verdict.violations == []
        if verdict.seen["stranded"]:
            return
    pytest.fail("no task was stranded")


@pytest.mark.backends("asyncio")
@pytest.mark.full
async def test_a_process_slow_to_end_is_detected(fleet, tmp_path):
    trial = ProcessorTrial(None, fleet, tmp_path, random.Random(), loops=("asyncio",), cheats=True)
    verdict = await trial.run(0, *["drain"] * 6)  # chance decides whether it is asked to end while it works
    assert verdict.violations
    assert any("s to end" in text for text in verdict.violations)


# ---------------------------------------------------------------------------------------------------- told to end


async def test_a_process_asked_to_end_gives_back_what_takes_too_long_and_is_gone(
    tmp_path, anyio_backend_name
):
    url, log = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "log"
    async with tenure.open_store(url) as store:
        queue = tenure.WorkQueue(store, "jobs")
        await queue.put_many([GRACE / 2] * 2 + [3600] * 20)
        with subprocess.Popen([sys.executable, CHILD, anyio_backend_name, url, str(GRACE), log]) as process:
            with anyio.fail_after(PATIENCE):
                while not log.exists() or len(log.read_text().split()) < 10:
                    await anyio.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            with anyio.fail_after(PATIENCE):
                while process.poll() is None:
                    await anyio.sleep(0.002)
            # without the 3,600 s of a handler; how soon is for the soak to judge
            assert process.returncode == 0
        counts = await queue.statistics()
        assert (counts.done, counts.leased, counts.waiting) == (2, 0, 20)
        assert {task.attempts for task in (await queue.tasks("waiting").page()).records} == {0}


# ---------------------------------------------------------------------------------------------- how long it was left


def test_what_a_dead_process_had_is_stranded_until_it_is_taken_again():
    clock = iter([0.0, 0.0, 0.0, 1.0, 1.5, 2.5]).__next__
    history = History(clock=clock)
    history.taken("jobs", "a", by="1")
    history.taken("jobs", "b", by="1")
    history.note("settled", "b", by="1")
    history.note("killed", "1")
    history.note("frozen", "2")
    history.taken("jobs", "a", by="3")
    (stranded,) = strandings(history)
    assert (stranded.item, stranded.seconds, stranded.since_disturbance) == ("a", 1.5, 1.0)


def test_a_task_waits_for_a_runner_once_another_task_of_its_process_was_taken():
    history = History(clock=iter([0.0, 0.0, 1.0, 2.0, 5.0]).__next__)
    for item in "ab":
        history.taken("jobs", item, by="1")
    history.note("killed", "1")
    for item in "ab":
        history.taken("jobs", item, by="2")
    assert [(one.seconds, one.since_disturbance) for one in strandings(history)] == [(1.0, 1.0), (4.0, 3.0)]


def test_what_others_had_before_the_kill_was_not_stranded_by_it():
    history = History()
    history.taken("jobs", "a", by="1")
    history.taken("jobs", "a", by="2")
    history.note("killed", "1")
    history.taken("jobs", "a", by="2")
    assert strandings(history) == []


def test_a_task_of_which_two_processes_have_died_runs_apart_and_is_no_stranding():
    history = History()
    for process in "123":
        history.taken("jobs", "a", by=process)
        history.note("killed", process)
    history.taken("jobs", "a", by="4")
    history.note("settled", "a", by="4")
    history.taken("jobs", "a", by="4")
    history.note("killed", "4")
    history.taken("jobs", "a", by="5")
    # after the first death, and after the verdict, which clears a suspect
    assert len(strandings(history)) == 2
