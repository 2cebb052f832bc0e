"""Tests that are not run by themselves: unittest's cases, and coroutines.

Few tests need the modules for that, which are imported late: they would make every fork slower.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .doubt import Unsure


def run_case(case: Any) -> None:
    """The first thing that is not as it should be ends the tests."""
    import unittest

    class Result(unittest.TestResult):
        def addError(self, test: Any, err: Any) -> None:
            raise err[1]

        addFailure = addError

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            if err is not None:
                raise err[1]

        def addUnexpectedSuccess(self, test: Any) -> None:
            raise AssertionError("a failure was expected")

        def addSkip(self, test: Any, reason: str) -> None:
            raise Unsure("the test is skipped")

    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(Result())


def count_assertions(count: Callable[[], None], weigh: Callable[[Any], Any], same: Callable[[Any, Any], Any]) -> None:
    """Have unittest's assertions say that they are reached, and what they find true or false."""
    import unittest

    case: Any = unittest.TestCase
    for name in [name for name in dir(case) if name.startswith("assert") and name[6:7].isupper()]:
        original = getattr(getattr(case, name), "original", getattr(case, name))

        def counted(this: Any, *args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            count()
            if _name in ("assertTrue", "assertFalse") and args:
                weigh(args[0])
            if _name in ("assertIs", "assertIsNot") and len(args) > 1:
                args = (args[0], same(*args[:2]), *args[2:])
            return _original(this, *args, **kwargs)

        vars(counted)["original"] = original
        setattr(case, name, counted)
    vars(unittest)["main"] = lambda *_, **__: None  # the cases are run anyway


def awaited(value: Any) -> Any:
    """The result of a test's coroutine, in a thread of its own: here a loop may be running already."""
    import asyncio

    results: list[Any] = []

    async def run() -> Any:
        return await value

    def wait() -> None:
        try:
            results.append((asyncio.run(run()), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    ((result, error),) = results
    if error is not None:
        raise error
    return result
