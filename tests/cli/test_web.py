"""`tenure web`: where it listens, what it says, and how it ends. The page itself: tests/web."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest

import tenure


@pytest.fixture
def store_with_a_queue(here):
    async def fill():
        async with tenure.open_store("sqlite:///tenure.db") as store:
            return await tenure.WorkQueue(store, "mail").put("secret")

    return anyio.run(fill)


@pytest.fixture
def served(store_with_a_queue, start):
    """Starts `tenure web`; gives the process and the address that it tells."""

    def run(*words, hint=""):
        child = start("web", *(words if ":" in "".join(words[:1]) else ("127.0.0.1:0", *words)))
        line = child.stdout.readline()
        found = re.fullmatch(
            rf"(http://\S+) shows sqlite:///tenure.db{re.escape(hint)}; Ctrl-C ends it\n", line
        )
        assert found, (line, child.stderr.read())
        return child, found[1]

    return run


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=pytest.mark.full), signal.SIGTERM])
def test_it_serves_until_it_is_asked_to_end(served, how):
    child, url = served()
    assert url.startswith("http://127.0.0.1:")
    assert b"<!doctype html>" in get(url)
    state = json.loads(get(url + "state.json"))
    assert state["queues"][0]["name"] == "mail"
    assert "secret" not in json.dumps(state)
    child.send_signal(how)
    out, err = child.communicate(timeout=50)
    assert (child.returncode, out, err) == (0, "", "")


def test_a_port_that_is_taken(store_with_a_queue, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = command("web", address)
    assert (ended.code, ended.out) == (1, "")
    assert (
        ended.err == f"tenure: cannot listen on {address}: Address already in use; name another HOST:PORT\n"
    )


def test_a_host_that_is_not_here(store_with_a_queue, command, monkeypatch):
    monkeypatch.setenv("TENURE_WEB_TOKEN", "correcthorse7")
    ended = command("web", "name.invalid:8765")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("tenure: cannot listen on name.invalid:8765: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("token", ["", "short", "with a space"])
def test_a_token_in_the_environment_that_is_none_does_not_open_the_page(misused, monkeypatch, token):
    monkeypatch.setenv("TENURE_WEB_TOKEN", token)
    line = misused("web", ":0")
    assert line.startswith("tenure: TENURE_WEB_TOKEN: a token has at least 8 letters and digits")


def test_actions_need_a_token_and_are_logged(served, misused, monkeypatch):
    line = misused("web", ":0", "--allow", "actions")
    assert line == "tenure: --allow needs a token in the environment variable TENURE_WEB_TOKEN\n"
    monkeypatch.setenv("TENURE_WEB_TOKEN", "correcthorse7")
    child, url = served("--allow", "actions", hint="; open it as /?token=TOKEN")
    asked = urllib.request.Request(
        url + "actions",
        data=b'{"action": "pause", "queue": "mail"}',
        headers={
            "Authorization": "Bearer correcthorse7",
            "Content-Type": "application/json",
            "X-Tenure-Action": "1",
            "Origin": url.removesuffix("/"),
        },
    )
    assert json.loads(get(asked)) == {"changed": 1}
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=50)
    assert err == "page.pause queue='mail' changed=1 by=127.0.0.1\n"


def test_the_command_on_the_page_puts_a_task(served, misused, monkeypatch, here):
    assert misused("web", ":0", "--allow", "puts").startswith("tenure: --allow needs a token")
    page = Path(__file__).parents[2] / "docs/how-to/put-from-elsewhere.md"
    (command,) = re.findall(r"^    (curl (?:.*\\\n)*.*)$", page.read_text("utf-8"), re.MULTILINE)
    monkeypatch.setenv("TENURE_WEB_TOKEN", "correcthorse7\n")  # as a file ends
    child, url = served("--allow", "puts", hint="; open it as /?token=TOKEN")
    place = url + "state.json"
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(place)
    with caught.value as refused:
        assert refused.code == 401
    assert json.loads(get(place + "?token=correcthorse7"))["queues"]
    words = shlex.split(command.replace("\\\n", "").replace("$TOKEN", "correcthorse7"))
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")
    data = words[words.index("-d") + 1].encode()
    target = words[1].replace("http://localhost:8765/", url)
    for status in (201, 200):
        with urllib.request.urlopen(urllib.request.Request(target, data, headers), timeout=10) as answer:
            assert answer.status == status
            task_id = json.loads(answer.read())["id"]
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=50)[1] == ""

    async def take():
        async with tenure.open_store("sqlite:///tenure.db") as store:
            return await tenure.WorkQueue(store, "mail").get(task_id)

    record = anyio.run(take)
    assert (record.payload, record.key) == ({"item": "book"}, "order-7")


def test_the_network_is_warned_of_and_payloads_are_shown_if_asked(served, store_with_a_queue):
    child, url = served("0.0.0.0:0", "--show", "payloads")
    task = json.loads(get(f"{url}queues/mail/tasks/{store_with_a_queue}"))
    assert (task["payload"], "error" in task) == ("secret", True)
    # the first sample is taken without any page
    while not json.loads(get(url + "history.json"))["samples"]:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=50)
    assert (
        err
        == "tenure: anyone who reaches this port can read the store; TENURE_WEB_TOKEN holds a token to require\n"
    )


def test_without_its_library(store_with_a_queue, command, monkeypatch):
    monkeypatch.delitem(sys.modules, "tenure.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    ended = command("web", ":0")
    assert (ended.code, ended.err) == (2, "tenure: tenure web needs h11: pip install 'tenure[web]'\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((":70000",), "it must be HOST:PORT"),
        ((), "there is no file tenure.db"),
    ],
)
def test_misuse(misused, words, line):
    assert line in misused("web", *words)
