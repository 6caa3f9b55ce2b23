"""Every interpreter, and the lowest version of each dependency: `nox -f .ci/noxfile.py`, or with `-s floor`.

It needs nox with uv, and the interpreters on the PATH; one that is not there is skipped. `.ci/run` decides whether a
change lands; this is run before a release, and after a change of a dependency.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
ROOT = Path(__file__).parents[1]
PARTS = (
    ("tests/local", "tests/store", "tests/shared", "-m", "not heavy", "-k", "memory or local"),
    ("tests/engines/test_contract.py", "-k", "memory or sqlite or postgres or redis"),
    ("tests/sql", "tests/observe", "tests/blocking", "tests/test_docs.py", "-m", "not heavy"),
)

nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.envdir = str(ROOT / "build" / "nox")


def run_parts(session: nox.Session) -> None:
    """Run the tests that a dependency would break first, or those that the command line names."""
    for part in [session.posargs] if session.posargs else PARTS:
        session.run("python", "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *part)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """With the newest dependencies."""
    session.chdir(ROOT)
    session.install("-e", ".[test]")
    run_parts(session)


@nox.session(python=PYTHONS)
def floor(session: nox.Session) -> None:
    """With the lowest version of each dependency that pyproject.toml allows and that this Python has a wheel of."""
    session.chdir(ROOT)
    # not create_tmp(), which sets TMPDIR: below it, the paths of sockets become too long
    lowest = Path(session.virtualenv.location, "lowest.txt")
    session.run(
        *("uv", "pip", "compile", "--quiet", "--python", str(Path(session.bin, "python"))),
        *("--resolution", "lowest-direct", "--only-binary", ":all:", "--extra", "test"),
        *("--output-file", str(lowest), "pyproject.toml"),
        external=True,
    )
    session.install("-r", str(lowest))
    session.install("--no-deps", "-e", ".")
    run_parts(session)


@nox.session(python=PYTHONS)
def extras(session: nox.Session) -> None:
    """With all extras, from a wheel, and away from the sources: the command starts, and runs a map."""
    session.install(f"{ROOT}[all]")
    session.chdir(session.create_tmp())
    session.run("uv", "pip", "check", external=True)
    session.run("tenure", "--version")
    for backend in ("asyncio", "uvloop", "trio"):
        session.run("tenure", "run", "tenure.examples:digest", "--fresh", "--backend", backend)


@nox.session(python=PYTHONS[0])
def package(session: nox.Session) -> None:
    """The sdist, and the wheel made from it: what is in them, and what their page will show."""
    session.chdir(ROOT)
    session.install("build", "twine", "check-wheel-contents")
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(folder))
    files = sorted(map(str, folder.glob("tenure-*")))
    session.run("twine", "check", "--strict", *files)
    session.run("check-wheel-contents", *(file for file in files if file.endswith(".whl")))
    session.run("python", ".ci/wheel.py", *(file for file in files if file.endswith(".whl")))
