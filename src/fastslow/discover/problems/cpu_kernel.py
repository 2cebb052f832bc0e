"""Write a fast C function for the length of the longest common subsequence of two texts.
It is `int lcs(const unsigned char *a, int n, const unsigned char *b, int m)`. The score is how many times faster it
is than the plain table of n * m cells that the search begins with, compiled in the same way (cc -O3 -march=native),
on random texts of about 2500 bytes over 2 to 26 letters. Every answer must be right. Keep nothing between calls.
"""

from __future__ import annotations

import base64
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np

from fastslow.discover import Failed, run

PAIRS, LENGTH, ROUNDS = 12, 2500, 3
LEAST = 0.01
"""Seconds below which the clock outside says nothing of a candidate."""
COMPILER = ("cc", "-O3", "-march=native", "-shared", "-fPIC", "-x", "c")

goal = "maximize"
suffix = ".c"
processes = True
tolerance = 0.35
seconds = 60.0
seed = """\
#include <stdlib.h>
#include <string.h>

int lcs(const unsigned char *a, int n, const unsigned char *b, int m) {
    int *row = calloc(m + 1, sizeof(int));
    for (int i = 0; i < n; i++) {
        int corner = 0;
        for (int j = 0; j < m; j++) {
            int above = row[j + 1];
            if (a[i] == b[j])
                row[j + 1] = corner + 1;
            else if (row[j] > above)
                row[j + 1] = row[j];
            corner = above;
        }
    }
    int length = row[m];
    free(row);
    return length;
}
"""
_CALLER = """
import base64, ctypes, tempfile

def call(library, pairs):
    with tempfile.NamedTemporaryFile(suffix=".so") as file:
        file.write(base64.b64decode(library))
        file.flush()
        lcs = ctypes.CDLL(file.name).lcs
        texts = [(base64.b64decode(a), base64.b64decode(b)) for a, b in pairs]
        return [int(lcs(a, len(a), b, len(b))) for a, b in texts]
"""


def evaluate(candidate: str) -> tuple[float, str]:
    """Time both in turn, from outside their processes: neither can reach the clock, and both get texts drawn just now."""
    ours, theirs = compiled(seed), compiled(candidate)
    speeds = []
    for _ in range(ROUNDS):
        pairs = draw()
        given, fast = _timed(theirs, pairs)
        expected, plain = _timed(ours, pairs)
        wrong = [index for index in range(len(pairs)) if given[index] != expected[index]]
        if wrong:
            a, b = (len(base64.b64decode(text)) for text in pairs[wrong[0]])
            said = f"for texts of {a} and {b} bytes lcs() returned {given[wrong[0]]}, not {expected[wrong[0]]}"
            raise Failed(f"{len(wrong)} of {len(pairs)} answers are wrong: {said}.")
        starts = sorted(_timed(library, [])[1] for library in (ours, theirs))
        # What starting a process takes is taken off in favour of the plain table: the score flatters no candidate.
        speeds.append(max(plain - starts[1], 0.0) / max(fast - starts[0], LEAST))
    speed = median(speeds)
    range_ = f"{min(speeds):.3g} to {max(speeds):.3g}"
    return speed, f"All answers are right. {speed:.3g} times as fast as the plain table ({range_} in {ROUNDS} rounds)."


def compiled(source: str) -> str:
    """A shared library, as text."""
    if shutil.which(COMPILER[0]) is None:
        raise Failed("there is no C compiler 'cc' on this machine; install one, such as gcc, to run this problem")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "kernel.so")
        command = [*COMPILER, "-", "-o", str(library)]
        made = subprocess.run(command, input=source, capture_output=True, text=True, timeout=30, check=False)
        if made.returncode:
            raise Failed(f"the program does not compile: {made.stderr.strip()[:1000]}")
        return base64.b64encode(library.read_bytes()).decode()


def draw() -> list[tuple[str, str]]:
    """Pairs of texts that nobody can know before."""
    random = np.random.default_rng(secrets.randbits(64))
    pairs = []
    for index in range(PAIRS):
        letters = (2, 4, 26)[index % 3]
        n, m = (int(size) for size in random.integers(LENGTH - 200, LENGTH + 200, 2))
        texts = [(97 + random.integers(0, letters, size)).astype(np.uint8).tobytes() for size in (n, m)]
        pairs.append((base64.b64encode(texts[0]).decode(), base64.b64encode(texts[1]).decode()))
    return pairs


def _timed(library: str, pairs: list[tuple[str, str]]) -> tuple[list[int], float]:
    start = time.perf_counter()
    answers = run(_CALLER, "call", library, pairs, seconds=20, packages=False)
    took = time.perf_counter() - start
    if not isinstance(answers, list) or len(answers) != len(pairs):
        raise Failed("lcs() did not return an answer for every pair of texts")
    return answers, took
