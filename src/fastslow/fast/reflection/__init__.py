"""Reflection: reading the feedback on a context and proposing an edit of its text.

kinds.py has the reflectors that a recipe can name, each with its options.
"""

from fastslow.fast.reflection import code as code  # enters its kind
from fastslow.fast.reflection.base import Attempt as Attempt
from fastslow.fast.reflection.base import Chat as Chat
from fastslow.fast.reflection.base import ChatFailed as ChatFailed
from fastslow.fast.reflection.base import ReflectionFailed as ReflectionFailed
from fastslow.fast.reflection.base import Reflector as Reflector
from fastslow.fast.reflection.base import Reply as Reply
from fastslow.fast.reflection.base import Request as Request
from fastslow.fast.reflection.base import TextRequest as TextRequest
from fastslow.fast.reflection.base import Usage as Usage
from fastslow.fast.reflection.chats import LiteLLMChat as LiteLLMChat
from fastslow.fast.reflection.chats import LocalChat as LocalChat
from fastslow.fast.reflection.language_model import LanguageModelReflector as LanguageModelReflector
from fastslow.fast.reflection.lessons import Lessons as Lessons
