"""Full-text search over rollouts: which of them hold some words in a question, an answer or what the grader said.

Texts repeat, questions and feedback above all: each is kept once, and a rollout has the numbers of its texts. A search is one
pass over all texts in memory, which are read when the first search asks for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

TEXTS = ("questions", "answers", "feedback", "error")


class TextIndex:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._files: dict[str, np.ndarray] = {}
        """By file: for each rollout the numbers of its texts."""

    def __contains__(self, file: str) -> bool:
        return file in self._files

    def add(self, file: str, columns: Sequence[Iterable[str]], rows: int) -> None:
        """The texts of a file's rollouts, a column for each kind of text."""
        numbers = self._numbers
        coded = [[numbers.setdefault(_plain(text), len(numbers)) for text in column] for column in columns]
        self._files[file] = np.array(coded, np.int32).reshape(len(coded), rows)

    def drop(self, file: str) -> None:
        self._files.pop(file, None)

    def found(self, words: str, files: Sequence[str], file: np.ndarray, row: np.ndarray) -> np.ndarray:
        """Which rollouts, by the place of their file among the files and by row, hold the words. Those of files that have
        not been read hold none."""
        words = _plain(words)
        if not words:
            return np.ones(len(row), bool)
        matches = np.array([words in text for text in self._numbers], bool)
        known = [self._files.get(name, np.zeros((1, 0), np.int32)) for name in files]
        hits = [matches[each].any(axis=0) for each in known]
        lengths = np.array([len(each) for each in hits], np.int64)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        inside = row < lengths[file]
        flat = np.concatenate([*hits, np.zeros(1, bool)])
        return np.where(inside, flat[np.where(inside, offsets[file] + row, -1)], False)


def _plain(text: str) -> str:
    """Capitals and white space make no difference."""
    return " ".join(text.casefold().split())
