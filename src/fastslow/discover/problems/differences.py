"""Find letters from a to z, marks of a ruler at 0 to 25, with as many different distances between two of them as possible.

Small enough for the embedded model: a candidate is a line of letters. The score is the number of different distances less the
number of those that occur again; 21 is the most, of seven marks of a Golomb ruler, whose distances all differ.
"""

from itertools import combinations
from string import ascii_lowercase

goal = "maximize"
seed = "a b c d e f\n"
suffix = ".txt"
seconds = 2
target = 21
prompt = "letters: {parent}"


def evaluate(candidate: str) -> tuple[int, str]:
    """Different distances less repeated ones, and which are repeated."""
    letters = candidate.split()
    if wrong := [each for each in letters if each not in ascii_lowercase or len(each) != 1]:
        raise ValueError(f"write single letters from a to z with spaces between them, not '{wrong[0][:20]}'")
    if not 2 <= len(letters) <= 26:
        raise ValueError(f"write 2 to 26 letters, not {len(letters)}")
    marks = [ascii_lowercase.index(each) for each in letters]
    distances = [abs(one - other) for one, other in combinations(marks, 2)]
    different = set(distances) - {0}
    again = sorted({each for each in distances if each == 0 or distances.count(each) > 1})
    words = f"These distances occur more than once: {', '.join(map(str, again))}." if again else "All distances differ."
    return 2 * len(different) - len(distances), words
