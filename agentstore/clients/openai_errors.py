"""What is raised when a model's service fails, and how a key is kept out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import openai

from agentstore.errors import ChatClientError

SHORTEST_KEY = 6
"""Characters; what is shorter is no secret, but something to fill the place of a key."""


def nothing_said(reason: str | None) -> ChatClientError:
    """For an answer that holds nothing, which is no message."""
    return ChatClientError(f"the model answered with nothing at all (finish_reason: {reason})")


@contextmanager
def raised_as_ours(client: openai.AsyncOpenAI) -> Iterator[None]:
    """The SDK's errors as `ChatClientError`; neither shows the client's key, also where the service repeated it."""
    try:
        yield
    except openai.APIError as error:
        _redact(error, client.api_key)
        raise ChatClientError(_told(error), status=getattr(error, "status_code", None)) from error
    except openai.OpenAIError as error:
        raise ChatClientError(without_key(str(error), client.api_key)) from error
    except json.JSONDecodeError as error:
        raise ChatClientError("the service sent something that is not JSON") from error


def without_key(text: str, key: str) -> str:
    """The text without the key, and without what services print of one: its first letters, stars, its last."""
    if len(key) < SHORTEST_KEY:
        return text
    return re.sub(rf"{re.escape(key[:3])}[\w.-]*\*[\w.*-]*", "***", text.replace(key, "***"))


def _redact(error: openai.APIError, key: str) -> None:
    refused = isinstance(error, openai.AuthenticationError)
    error.message = "the service refused the API key" if refused else without_key(error.message, key)
    error.args = (error.message,)
    error.body = None  # the message tells it all, and a body may repeat the key


def _told(error: openai.APIError) -> str:
    status = getattr(error, "status_code", None)
    if isinstance(error, openai.APITimeoutError):
        return "the model's service did not answer in time"
    if isinstance(error, openai.APIConnectionError):
        return f"the model's service cannot be reached: {error.__cause__ or error.message}"
    return f"{error.message} (HTTP {status})" if status else error.message
