import os

os.environ.setdefault("CI", "1")  # TRL sends no telemetry
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import fastslow  # noqa: F401  sets the thread policy, so before anything imports torch

# isort: split
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

LONGEST = (
    *("test_start", "test_studies", "test_sharded_run", "test_fleet", "test_saving_rollouts", "test_fst_example"),
    *(
        "test_update_distribution",
        "test_world",
        "test_hostile_feedback",
        "test_sampling",
        "test_notebooks",
        "test_stops",
    ),
    *("test_distill_run", "test_continual", "test_asymptote", "test_commands", "test_comparison", "test_quickstart"),
    *("test_training", "test_suite", "test_divergence", "test_trainer", "test_shared_rollouts", "test_export"),
    *("test_sentences", "test_bad_runs", "test_faults_benchmark", "test_fast_loop_benchmark", "test_ahead"),
)
"""Files that take long go first, so that processes that share the tests end at the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def _models_are_tried_once() -> None:
    """The probe for training over a tree takes a second: it runs once for each kind of model, not in every run. The probe
    itself is tested in tests/prefix. Tests that do without torch are not made to wait for it."""
    if "torch" not in sys.modules:
        return
    import torch

    from fastslow.engine.local import trainer

    found: dict[tuple[Any, ...], str | None] = {}
    ask = trainer.why_not_train

    def why_not_train(model: Any) -> str | None:
        inner, weight = getattr(model, "module", model), next(model.parameters())
        kind = (
            *(type(model), type(inner), inner.config.to_json_string(), inner.config._attn_implementation),
            *(str(getattr(inner, "peft_config", None)), weight.dtype, torch.is_autocast_enabled("cpu")),
        )
        if kind not in found:
            found[kind] = ask(model)
        return found[kind]

    trainer.why_not_train = why_not_train


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tiny model saved as a standard folder."""
    import tiny

    return tiny.save(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def by_words(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> list[str]:
    """A tiny model, and a grader by different words: answers of a group differ, none is perfect, and there are many edits."""
    file = tmp_path_factory.mktemp("grader") / "length.py"
    file.write_text(
        "def grade(answer, row):\n"
        "    words = answer.split()\n"
        "    return len(set(words)) / 8, f'say {len(words)} more words\\nuse the word {(words or [0])[0]}'\n"
    )
    return [f"task.grader={file}:grade", f"model={tiny_folder}", "model.device=cpu"]
