"""Problems, how they are shown, how they are graded."""

from fastslow.tasks.base import Ask, Example, Feedback, Message, Options, QuestionTask, Split, Task

__all__ = ["Ask", "Example", "Feedback", "Message", "Options", "QuestionTask", "Split", "Task"]
