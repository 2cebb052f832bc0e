"""Problems, how they are shown, how they are graded."""

from fastslow.tasks.base import Ask, Component, Example, Feedback, Message, Options, QuestionTask, Split, Task

__all__ = ["Ask", "Component", "Example", "Feedback", "Message", "Options", "QuestionTask", "Split", "Task"]
