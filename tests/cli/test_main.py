"""The command as a process: secrets that nobody sees, and outputs that nobody reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

import tenure
from tenure.cli._errors import one_line

COMMAND = [sys.executable, "-m", "tenure.cli"]
PASSWORD = "correcthorse7"


@pytest.fixture
def store_with_a_queue(here):
    fill("sqlite:///tenure.db")


def fill(url):
    async def put():
        async with tenure.open_store(url) as store:
            await tenure.WorkQueue(store, "mail").put(1)

    anyio.run(put)


# the store in the environment


def test_the_environment_names_the_store(here, command, monkeypatch):
    fill("sqlite:///mine.db")
    monkeypatch.setenv("TENURE_STORE", "sqlite:///mine.db")
    assert "mail" in command("queue", "ls").out
    assert "sqlite:///mine.db" in command("doctor").out
    assert "mail" in command("top").out
    fill("sqlite:///other.db")
    assert "other.db" in command("doctor", "--store", "sqlite:///other.db").out
    assert "other.db" in command("doctor", "sqlite:///other.db").out


def test_a_run_is_kept_in_the_store_of_the_environment(here, command, monkeypatch):
    (here / "in.txt").write_text("a\n")
    monkeypatch.setenv("TENURE_STORE", "sqlite:///mine.db")
    assert command("run", "tenure.examples:words", "in.txt").code == 0
    assert (here / "mine.db").exists()
    assert not (here / "tenure.db").exists()
    monkeypatch.setenv("TENURE_STORE", "")  # as if it were not there
    assert command("run", "tenure.examples:words", "in.txt").code == 0
    assert (here / "tenure.db").exists()


def test_misuse_names_what_named_the_store(misused, monkeypatch):
    assert "the default store, sqlite:///tenure.db: there is no file" in misused("queue", "ls")
    monkeypatch.setenv("TENURE_STORE", "sqlite:///gone.db")
    assert "TENURE_STORE: there is no file gone.db" in misused("queue", "ls")
    monkeypatch.setenv("TENURE_STORE", "nonsense")
    assert "TENURE_STORE: 'nonsense' is not a store URL" in misused("queue", "ls")
    assert "--store: 'other' is not a store URL" in misused("queue", "ls", "--store", "other")
    assert "TENURE_STORE: 'nonsense' is not a store URL" in misused("run", "tenure.examples:words", __file__)
    assert "name the store once" in misused("doctor", "memory:", "--store", "memory:")


# secrets


def test_a_password_stands_nowhere(own_redis_server, here, start, command, capsys, monkeypatch):
    server = own_redis_server()
    server("CONFIG", "SET", "requirepass", PASSWORD)
    url = f"unix://:{PASSWORD}@{server.url.removeprefix('unix://')}"
    monkeypatch.setenv("TENURE_STORE", url)
    fill(url)
    for words in (
        ("queue", "ls"),
        ("queue", "show", "mail"),
        ("doctor",),
        ("doctor", "--json"),
        ("top",),
        ("top", "--json"),
        ("queue", "ls", url),
        ("queue", url),
        (url,),
        ("queue", "show", url),
        ("queue", "pause", "gone"),
    ):
        ended = command(*words)
        assert PASSWORD not in ended.out + ended.err, words
    for command_words in (("run",), ("queue", "ls"), ("top",), ("web",), ("doctor",)):
        with pytest.raises(SystemExit):
            command(*command_words, "--help")
        help_text = capsys.readouterr().out
        assert "TENURE_STORE" in help_text
        assert PASSWORD not in help_text
    web = start("web", "127.0.0.1:0")
    line = web.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    assert PASSWORD not in line
    assert PASSWORD.encode() not in Path(f"/proc/{web.pid}/cmdline").read_bytes()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://:pw@host: away", "redis://...@host: away"),
        ("redis://ann:p@w/x@host:1/2 is away", "redis://...@host:1/2 is away"),
        ("write redis://:PASSWORD@HOST", "write redis://:PASSWORD@HOST"),
        ("redis://ann@host:1/2 is away", "redis://ann@host:1/2 is away"),
        ("http://host:80/ and ann@example.org", "http://host:80/ and ann@example.org"),
        ("\x1b[2J\nq", "\\x1b[2J q"),
    ],
)
def test_a_message_shows_no_password_and_commands_no_terminal(text, shown):
    assert one_line(ValueError(text)) == shown


# outputs


@pytest.mark.parametrize(
    "words",
    [
        ("queue", "ls"),
        pytest.param(("top", "--json"), marks=pytest.mark.full),
        pytest.param(("web", "--help"), marks=pytest.mark.full),
        pytest.param(("--help",), marks=pytest.mark.full),
    ],
)
def test_a_reader_that_leaves_early_is_no_fault(store_with_a_queue, words):
    source, sink = os.pipe()
    os.close(source)
    try:
        ended = subprocess.run(
            [*COMMAND, *words], stdout=sink, stderr=subprocess.PIPE, text=True, timeout=50, check=False
        )
    finally:
        os.close(sink)
    assert ended.stderr == ""
    assert ended.returncode in {0, 1}


def test_streams_that_are_closed_are_no_fault(store_with_a_queue):
    line = f"{sys.executable} -m tenure.cli queue ls >&- <&-"
    ended = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, timeout=50, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        "show q ID",
        "show \u4e2d",
        *(pytest.param(words, marks=pytest.mark.full) for words in ("ls", "show q", "groups q", "dead q")),
    ],
)
@pytest.mark.parametrize(
    "more",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1:strict"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
    ids=["ascii", "latin", "locale"],
)
def test_a_character_that_the_output_lacks_is_escaped(here, command, words, more):
    url = f"sqlite:///{here}/store.db"
    for queue in ("\u4e2d", "q"):
        put = command(
            "queue", "put", queue, '"\u4e2d"', "--key", "\u4e2d", "--group", "\u4e2d", "--store", url
        )
    words = words.replace("ID", put.out.strip())
    for how in ((), ("--json",)):
        line = [*COMMAND, "queue", *words.split(), "--store", url, *how]
        ended = subprocess.run(line, capture_output=True, timeout=50, check=False, env={**os.environ, **more})
        assert b"Traceback" not in ended.stderr, ended.stderr
        said = ended.stdout.decode(more.get("PYTHONIOENCODING", "ascii").partition(":")[0])
        if ended.returncode:
            assert words.endswith("\u4e2d") and "LC_ALL" in more and b"lone surrogates" in ended.stderr
        elif how:
            assert "\u4e2d" in str(json.loads(said)) or words == "dead q"
        else:
            assert "\\u4e2d" in said or words == "dead q"


@pytest.mark.skipif(
    sys.version_info[:3] == (3, 13, 0), reason="Python 3.13.0 imports no socket in a deleted directory"
)
def test_a_working_directory_that_was_deleted_is_named(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = f"""if True:
        import os, sys
        os.rmdir({str(gone)!r})
        from tenure.cli import main
        put = main("queue put q 1 --store sqlite:///x.db".split())
        sys.exit(10 * put + main("work one:two --queue q --store sqlite:////none/x.db".split()))
    """
    line = [sys.executable, "-c", code]
    ended = subprocess.run(line, cwd=gone, capture_output=True, text=True, timeout=50, check=False)
    put, work = ended.stderr.splitlines()
    assert ended.returncode == 22
    assert put.startswith("tenure: --store: x.db is relative to the working directory, which was")
    assert work.startswith("tenure: one:two cannot be imported: the working dir")


def test_ctrl_c_in_an_import_of_the_command_is_one_line(here):
    code = """if True:
        import sys

        class Interrupting:
            def find_spec(self, name, path, target=None):
                if name == "anyio":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from tenure.cli import main
        sys.exit(main())
    """
    ended = subprocess.run([sys.executable, "-c", code, "top"], capture_output=True, timeout=50, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"tenure: interrupted\n")
