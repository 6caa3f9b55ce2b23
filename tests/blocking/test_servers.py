"""Web servers and frameworks: gunicorn that forks with the application loaded, Flask, Django."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from tenure import blocking

pytest.importorskip("gunicorn")

APPLICATION = """
import os
from tenure import blocking

store = blocking.open_store(os.environ["STORE"])
queue = blocking.WorkQueue(store, "mail")
lock = blocking.Lock(store, "report")
{before}

def application(environ, start_response):
    with lock.hold(timeout=20):
        number = queue.put(environ["PATH_INFO"])
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [f"{{os.getpid()}} {{number}} {{store.statistics().process}}".encode()]
"""


class Server:
    """gunicorn with two workers that share what was loaded before the fork."""

    def __init__(self, folder, url, *words, before=""):
        (folder / "shop.py").write_text(APPLICATION.format(before=before))
        self.socket = folder / "http.sock"
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gunicorn", "shop:application"),
                    *(
                        "--preload",
                        "--workers",
                        "2",
                        "--bind",
                        f"unix:{self.socket}",
                        "--no-control-socket",
                        *words,
                    ),
                ],
                cwd=folder,
                env={**os.environ, "STORE": url},
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 30
        while self.log.read_text().count("Booting worker") < 2:
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def get(self, path):
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(30)
        connection.sock.connect(str(self.socket))
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        assert response.status == 200, self.log.read_text()
        return text.split()

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        assert self.process.wait(30) == 0, self.log.read_text()
        text = self.log.read_text()
        assert "Traceback" not in text and "Exception" not in text, text


@pytest.mark.parametrize(
    "workers", [("--worker-class", "sync"), ("--worker-class", "gthread", "--threads", "3")]
)
def test_gunicorn_with_preload(process_url, tmp_path, workers):
    server = Server(tmp_path, process_url, *workers)
    try:
        answers = [server.get(f"/{n}") for n in range(20)]
    finally:
        server.end()
    assert len({number for _, number, _ in answers}) == 20
    # a connection for each process
    assert len({pid for pid, _, _ in answers}) == len({name for _, _, name in answers})
    with blocking.open_store(process_url) as store:
        assert blocking.WorkQueue(store, "mail").statistics().waiting == 20


def test_gunicorn_whose_application_used_the_store_before_the_fork(server_url, tmp_path):
    server = Server(tmp_path, server_url, before="queue.put(0)")
    try:
        pids = {server.get("/x")[0] for _ in range(20)}
    finally:
        server.end()
    assert str(server.process.pid) not in pids


@pytest.mark.parametrize("is_away", [False, True])
def test_gunicorn_ends_without_a_traceback_where_the_url_has_a_name(
    own_redis_server, free_port, tmp_path, is_away
):
    """asyncio resolves it in a thread, and ends that in another thread, which Python starts at its end no more."""
    port = free_port()
    redis = own_redis_server("--port", str(port))
    server = Server(tmp_path, f"redis://localhost:{port}")
    try:
        answered = set()
        while len(answered) < 2:  # the system chooses who accepts
            answered.add(server.get("/x")[0])
        if is_away:
            redis.kill()
            time.sleep(0.5)  # the workers notice it, and connect again and again
    finally:
        server.end()


def test_gunicorn_whose_workers_are_killed(redis_server, tmp_path):
    server = Server(tmp_path, redis_server.url)
    try:
        first = {server.get("/x")[0] for _ in range(10)}
        for pid in first:
            subprocess.run(["kill", "-9", pid], check=True)
        for _ in range(10):
            assert server.get("/x")[0] not in first
    finally:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0


def test_flask(url):
    flask = pytest.importorskip("flask")
    store = blocking.open_store(url)
    queue = blocking.WorkQueue(store, "mail")
    app = flask.Flask("shop")

    @app.post("/mail/<to>")
    def put(to):
        return {"id": queue.put({"to": to})}

    try:
        client = app.test_client()
        number = client.post("/mail/ann").json["id"]
        assert queue.get(number).payload == {"to": "ann"}
    finally:
        store.close()


DJANGO = """
import sys, asyncio, django
from django.conf import settings
from django.http import JsonResponse
from django.test import AsyncClient, Client
from django.urls import path
from tenure import Limit, blocking

store = blocking.open_store(sys.argv[1])
queue = blocking.WorkQueue(store, "mail")

def put(request, to):
    with blocking.RateLimiter(store, "mail", Limit(100)):
        return JsonResponse({"id": queue.put({"to": to})})

urlpatterns = [path("mail/<to>", put)]
settings.configure(ROOT_URLCONF=__name__, SECRET_KEY="x", ALLOWED_HOSTS=["*"])
django.setup()
number = Client().get("/mail/ann").json()["id"]
other = asyncio.run(AsyncClient().get("/mail/bob")).json()["id"]
assert queue.get(number).payload == {"to": "ann"}
assert queue.get(other).payload == {"to": "bob"}
"""


def test_django(tmp_path):
    pytest.importorskip("django")
    url = f"sqlite:///{tmp_path}/shop.db"
    done = subprocess.run(
        [sys.executable, "-c", DJANGO, url], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
