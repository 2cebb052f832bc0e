"""The doctor on the machine that the tests run on."""

from __future__ import annotations

import io
from importlib import metadata

import pytest
from rich.console import Console

from fastslow.commands import doctor
from fastslow.errors import FastSlowError


def examined() -> str:
    console = Console(file=io.StringIO(), width=200)
    doctor.examine(console)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_it_names_what_is_used_and_what_is_missing_and_makes_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    said = examined()
    assert f"torch              {metadata.version('torch')}" in said
    assert "ANTHROPIC_API_KEY" in said
    assert "secret" not in said
    assert "self-test: 2 steps and a cycle of the fast loop" in said


def test_a_package_that_does_not_fit_is_an_error_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: ["torch>=99", "no-such-package==1", "rich; extra == 'vllm'"])
    with pytest.raises(FastSlowError) as error:
        examined()
    assert str(error.value).splitlines() == [
        f"torch: {metadata.version('torch')}; pip install 'torch>=99'",
        "no-such-package: missing; pip install 'no-such-package==1'",
    ]


def test_a_self_test_that_fails_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "SELF_TEST", (*doctor.SELF_TEST, "model.name=./no-such-model"))
    with pytest.raises(FastSlowError, match=r"self-test: ModelError: no model folder './no-such-model'"):
        examined()


def test_without_installation_versions_are_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> list[str]:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    assert [*doctor._packages(), *doctor._extras()] == []
