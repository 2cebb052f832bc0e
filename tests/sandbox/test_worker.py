"""A child process answers from any thread, and one that hangs, crashes or runs out of memory costs one answer only."""

import os
import threading
from pathlib import Path

import pytest

from fastslow.base.errors import TaskError
from fastslow.sandbox.process import Reply, Worker

HANDLER = """
import os, socket, subprocess, time

CHANGES = {
    "write": lambda: open(os.devnull, "w"),
    "remove": lambda: os.remove("/nowhere"),
    "network": lambda: socket.socket().connect(("127.0.0.1", 9)),
    "process": lambda: subprocess.run(["true"]),
}

def handle(request):
    if request == "spin":
        while True:
            pass
    if request == "sleep":
        time.sleep(60)
    if request == "crash":
        os._exit(3)
    if request == "raise":
        raise RuntimeError("no")
    if request == "memory":
        bytearray(3 * 2**30)
    if request == "long":
        return "x" * 33 * 2**20
    if request == "print":
        print("not a reply")
    if str(request) in CHANGES:
        try:
            CHANGES[request]()
        except PermissionError as error:
            return str(error)
    if request == "secret":
        return os.environ.get("MY_TOKEN")
    return [request, os.getpid()]
"""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Worker:
    file = tmp_path_factory.mktemp("worker") / "handler.py"
    file.write_text(HANDLER)
    return Worker(file, seconds=0.5, gigabytes=1)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ("spin", "time"),
        ("sleep", "time"),
        ("crash", "crash"),
        ("raise", "error"),
        ("memory", "memory"),
        ("long", "output"),
    ],
)
def test_a_fault_costs_one_answer(worker: Worker, request_: str, reason: str) -> None:
    before = worker.ask("é").value
    assert before == ["é", before[1]]
    fault = worker.ask(request_)
    assert (fault.value, fault.reason) == (None, reason)
    after = worker.ask({"a": [1, None]}).value
    assert after[0] == {"a": [1, None]}
    assert after[1] not in (before[1], os.getpid())


def test_the_same_child_answers_from_every_thread(worker: Worker) -> None:
    replies: list[list[object]] = []
    threads = [threading.Thread(target=lambda n=n: replies.append(worker.ask(n).value)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply[0] for reply in replies) == list(range(8))  # type: ignore[type-var]
    assert len({reply[1] for reply in replies}) == 1


def test_what_is_printed_is_no_reply_and_secrets_stay_here(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.ask("print").value[0] == "print"
    monkeypatch.setenv("MY_TOKEN", "hunter2")
    worker.close()
    assert worker.ask("secret") == Reply()


@pytest.mark.parametrize("change", ["write", "remove", "network", "process"])
def test_changing_anything_outside_is_refused(worker: Worker, change: str) -> None:
    assert worker.ask(change).value.endswith(" is refused here")


def test_a_handler_that_cannot_be_loaded_is_an_error_with_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import no_such_library\n")
    with pytest.raises(TaskError, match="cannot start: ModuleNotFoundError: No module named 'no_such_library'"):
        Worker(file, seconds=1).ask(1)
