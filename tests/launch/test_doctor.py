"""The doctor on the machine that the tests run on."""

from __future__ import annotations

import socket
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import metadata
from threading import Thread

import pytest
from helpers import ROOT
from huggingface_hub import constants

from fastslow.commands.app import main
from fastslow.launch import doctor


def examined(code: int, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """What `fastslow doctor` prints, on stdout and on stderr."""
    with pytest.raises(SystemExit) as stopped:
        main(["doctor"])
    assert (stopped.value.code or 0) == code
    shown = capsys.readouterr()
    return shown.out, shown.err


def test_it_names_what_is_used_and_what_is_missing_and_makes_a_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    said, _ = examined(0, capsys)
    assert ["torch", metadata.version("torch")] in [line.split()[1:3] for line in said.splitlines()]
    assert "ANTHROPIC_API_KEY" in said
    assert "secret" not in said
    assert "self-test: 2 steps and a cycle of the fast loop" in said


def test_a_package_that_does_not_fit_is_an_error_with_the_line_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["torch>=99", "no-such-package==1", "rich; extra == 'vllm'"])
    _, error = examined(2, capsys)
    assert error.splitlines() == [
        f"error: torch: {metadata.version('torch')}; pip install 'torch>=99'",
        "no-such-package: missing; pip install 'no-such-package==1'",
    ]


def test_a_self_test_that_fails_says_how(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "SELF_TEST", (*doctor.SELF_TEST, "model.name=./no-such-model"))
    _, error = examined(2, capsys)
    assert "self-test: ModelError: no model folder './no-such-model'" in error


def test_every_extra_of_a_user_is_listed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(doctor.USES) == set(extras) - {"docs", "dev"}


def test_without_installation_versions_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    assert [*doctor._packages(), *doctor._extras()] == []


@pytest.fixture
def hub() -> Iterator[str]:
    """The address of a server that answers, if only that there is nothing."""

    class Nothing(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Nothing)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_model_hub_is_asked(monkeypatch: pytest.MonkeyPatch, hub: str) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub)
    assert (doctor._hub().state, doctor._hub().found.partition(",")[0]) == ("good", f"{hub} answers")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    unreachable = doctor._hub()
    assert unreachable.state == "absent"
    assert "http://127.0.0.1:1 cannot be reached" in unreachable.found
    assert "models in the cache" in unreachable.advice
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert doctor._hub().found.startswith("offline by HF_HUB_OFFLINE")


def test_a_hub_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "HUB_PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not doctor._answers(f"http://127.0.0.1:{silent.getsockname()[1]}")
