"""Options are read, checked, and refused in one line."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from importlib.metadata import version

import pytest

from tenure.cli._arguments import DEFAULT_STORE, RateArgument, parse_run
from tenure.cli._errors import UsageError
from tenure.cli.run._glob import Glob
from tenure.processor import PRESETS


def test_defaults():
    options = parse_run(["m:f", "a.txt"])
    assert (options.handler, options.inputs, options.globs) == ("m:f", ("a.txt",), ())
    assert (options.store, options.run, options.fresh) == (DEFAULT_STORE, None, False)
    assert (options.workers, options.rate, options.retries, options.timeout) == (10, None, 3, None)
    assert (options.results, options.backend, options.queue_size) == (None, "asyncio", 10_000)


def test_options_may_stand_anywhere():
    options = parse_run(
        "--workers 3 m:f --store memory: a.txt --results r.jsonl b.txt --timeout 1.5 - --run x".split()  # noqa: SIM905
    )
    assert options.inputs == ("a.txt", "b.txt", "-")
    assert (options.workers, options.store, options.results, options.timeout) == (
        3,
        "memory:",
        "r.jsonl",
        1.5,
    )


def test_from_may_be_repeated():
    assert parse_run(["m:f", "--from", "a/*", "--from", "b/*"]).globs == ("a/*", "b/*")


def test_the_example_has_an_input_of_its_own():
    files = [name for glob in parse_run(["tenure.examples:digest"]).globs for name in Glob(glob).names()]
    assert {json.__file__, ast.__file__} <= {*files}
    assert not any("site-packages" in name for name in files)
    assert parse_run(["tenure.examples:digest", "--from", "a/*"]).globs == ("a/*",)
    assert parse_run(["tenure.examples:digest", "a.txt"]).globs == ()


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/s", RateArgument(100, 1)),
        ("600/m", RateArgument(600, 60)),
        ("10/h", RateArgument(10, 3600)),
        ("0.5/s", RateArgument(0.5, 1)),
        ("none", None),
    ],
)
def test_rates(text, rate):
    assert parse_run(["m:f", "a", "--rate", text]).rate == rate


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fills_the_defaults(name):
    preset = PRESETS[name]
    options = parse_run(["m:f", "a", "--preset", name])
    assert (options.workers, options.rate) == (preset.workers, RateArgument(preset.rate, 1))
    assert options.queue_size == preset.queue_size
    options = parse_run(["m:f", "a", "--preset", name, "--workers", "7", "--rate", "none"])
    assert (options.workers, options.rate) == (7, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "required: module:handler"),
        ("m:f", "there is no input"),
        ("m:f a --from b", "not both"),
        ("m:f -", "needs --run"),
        ("m:f - - --run x", "only once"),
        ("m:f a --workers 0", "--workers: '0' is not a whole number from 1 to 10,000"),
        ("m:f a --workers 99999999", "--workers: '99999999' is not a whole number from 1 to 10,000"),
        ("m:f a --retries 99999999999999999999999", "is not a whole number from 1 to 1,000,000,000"),
        ("m:f a --timeout 1e300", "--timeout: '1e300' is not a number of seconds"),
        ("m:f a --workers many", "--workers: 'many'"),
        ("m:f a --workers 10001", "--workers: '10001' is not a whole number from 1 to 10,000"),
        ("m:f a --max-deliveries 0", "--max-deliveries: '0' is not a whole number"),
        ("m:f a --retries -1", "--retries"),
        ("m:f a --timeout 0", "--timeout: '0' is not a number of seconds"),
        ("m:f a --timeout nan", "--timeout: 'nan'"),
        ("m:f a --rate 100", "write 100/s"),
        ("m:f a --rate 0/s", "write 100/s"),
        ("m:f a --rate 5/d", "write 100/s"),
        ("m:f a --preset huge", "--preset: invalid choice: 'huge'"),
        ("m:f a --backend curio", "--backend: invalid choice: 'curio'"),
        ("m:f a --run a/b", "--run: 'a/b' is not a name"),
        ("m:f a --nonsense", "unrecognized arguments: --nonsense"),
        ("m:f a --work 3", "unrecognized arguments: --work"),
    ],
)
def test_what_is_wrong_is_reported(words, told):
    with pytest.raises(UsageError) as caught:
        parse_run(words.split())
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("backend", "extra"), [("uvloop", "tenure[cli]"), ("trio", "tenure[trio]")])
def test_a_missing_loop_names_the_extra(backend, extra, monkeypatch):
    monkeypatch.setattr("tenure.cli._arguments.find_spec", lambda _: None)
    with pytest.raises(UsageError) as caught:
        parse_run(["m:f", "a", "--backend", backend])
    assert extra in str(caught.value)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "a command is missing"),
        (["rnu"], "there is no command 'rnu'; did you mean run? There are run, work,"),
        (["run"], "see tenure run --help"),
    ],
)
def test_wrong_commands(misused, words, told):
    assert told in misused(*words)


def test_version(command):
    assert command("--version") == (0, f"tenure {version('tenure')}\n", "")


def test_help(command, capsys):
    assert "tenure COMMAND --help" in command("--help").out
    with pytest.raises(SystemExit) as ended:
        command("run", "--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for word in ("--from", "--results", "--fresh", "exit code", "tenure.Task"):
        assert word in out


def test_the_room_can_be_run_as_a_module():
    words = [sys.executable, "-m", "tenure.cli", "--help"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told.startswith("usage: tenure")
