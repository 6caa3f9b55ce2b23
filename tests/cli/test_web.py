"""`tenure web`: where it listens, what it says, and how it ends. The page itself: tests/web."""

from __future__ import annotations

import json
import re
import signal
import sys
import urllib.error
import urllib.request

import anyio
import pytest

import tenure


@pytest.fixture
def store_with_a_queue(here):
    async def fill():
        async with tenure.open_store("sqlite:///tenure.db") as store:
            await tenure.WorkQueue(store, "mail").put("secret")

    anyio.run(fill)


@pytest.fixture
def served(store_with_a_queue, start):
    """Starts `tenure web`; gives the process and the address that it tells."""

    def run(*words):
        child = start("web", "--port", "0", *words)
        line = child.stdout.readline()
        found = re.fullmatch(r"(http://\S+) shows sqlite:///tenure.db; Ctrl-C ends it\n", line)
        assert found, (line, child.stderr.read())
        return child, found[1]

    return run


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_told_to_end(served, how):
    child, url = served()
    assert url.startswith("http://127.0.0.1:")
    assert b"<!doctype html>" in get(url)
    state = json.loads(get(url + "state.json"))
    assert state["queues"][0]["name"] == "mail"
    assert "secret" not in json.dumps(state)
    child.send_signal(how)
    out, err = child.communicate(timeout=50)
    assert (child.returncode, out, err) == (0, "", "")


def test_with_a_token(served):
    _, url = served("--token", "correcthorse7")
    assert url.endswith("/?token=correcthorse7")
    place = url.partition("/?")[0]
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(place + "/state.json")
    with caught.value as refused:
        assert refused.code == 401
    assert json.loads(get(place + "/state.json?token=correcthorse7"))["queues"]


def test_the_network_is_warned_of(served):
    child, _ = served("--host", "0.0.0.0")
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=50)
    assert err == "tenure: whoever reaches this port can look at the store; --token asks for a password\n"


def test_a_port_that_is_taken(served, command):
    _, url = served()
    ended = command("web", "--port", url.rpartition(":")[2].strip("/"))
    assert ended.code == 1
    assert ended.err.count("\n") == 1


def test_without_its_library(store_with_a_queue, command, monkeypatch):
    monkeypatch.delitem(sys.modules, "tenure.web._server", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)
    ended = command("web", "--port", "0")
    assert (ended.code, ended.err) == (2, "tenure: tenure web needs h11: pip install 'tenure[web]'\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--port", "70000"), "'70000' is no port"),
        (("--token", "short"), "a token has at least 8 letters and digits"),
        (("--token", "with a space"), "a token has at least 8 letters and digits"),
        ((), "there is no file tenure.db"),
    ],
)
def test_misuse(misused, words, line):
    assert line in misused("web", *words)
