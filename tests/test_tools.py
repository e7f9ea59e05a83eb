"""Function tools: what the model is told about a callable, and how its arguments become values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest

from agentstore import ConfigurationError, FunctionTool, tool


@dataclass
class Place:
    city: str
    country: str = "IT"


class Field:
    """As pydantic's: a note with a description."""

    def __init__(self, description: str) -> None:
        self.description = description


def weather(
    place: Annotated[Place, "Where"],
    unit: Annotated[Literal["c", "f"], Field(description="Degrees")] = "c",
    days: int | None = None,
) -> str:
    """The weather at a place."""
    return f"{place.city} {place.country} {unit} {days}"


def test_a_callable_describes_itself() -> None:
    """Name, docstring and type hints become name, description and JSON schema."""
    made = tool(weather)
    assert (made.name, made.description) == ("weather", "The weather at a place.")
    schema = made.parameters()
    assert schema["properties"]["unit"] == {"description": "Degrees", "enum": ["c", "f"]}
    assert schema["properties"]["days"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema["properties"]["place"]["description"] == "Where"
    assert schema["$defs"]["Place"]["required"] == ["city"]
    assert (schema["required"], schema["additionalProperties"]) == (["place"], False)
    assert made.to_json_schema_spec() == {
        "type": "function",
        "function": {"name": "weather", "description": "The weather at a place.", "parameters": schema},
    }


def test_a_schema_is_the_callers_own() -> None:
    """Changing it changes no tool."""
    made = tool(weather)
    made.parameters()["properties"].clear()
    assert made.parameters()["properties"] != {}


def test_arguments_become_values_of_the_parameters_types() -> None:
    """Texts of numbers too, as models write them; missing ones are left to the function's defaults."""
    made = tool(weather)
    assert asyncio.run(made.invoke('{"place": {"city": "Rome"}, "days": "3"}')) == "Rome IT c 3"
    assert made(Place("Bari"), "f") == "Bari IT f None"


@pytest.mark.parametrize(
    "arguments",
    ["{", "[]", '"text"', {}, {"place": 7}, {"place": {"city": "Rome"}, "unit": "k"}, {"place": {}}, {"town": "Rome"}],
)
def test_arguments_that_do_not_fit_are_refused(arguments: Any) -> None:
    """`ValueError`, before the function is called."""
    with pytest.raises(ValueError, match=r"\w"):
        asyncio.run(tool(weather).invoke(arguments))


def test_a_tool_can_be_told_what_it_is() -> None:
    """By the decorator, with and without arguments, or the class; a schema stands in for the hints."""

    @tool(name="sum", description="Adds.", approval_mode="never_require")
    async def add(a: int, b: int = 0) -> int:
        return a + b

    schema = {"type": "object", "properties": {"anything": {}}}

    def give(**values: Any) -> Any:
        return values

    loose = FunctionTool(name="loose", description="Takes all.", func=give, input_model=schema)
    assert (add.name, add.description, repr(add)) == ("sum", "Adds.", "FunctionTool('sum')")
    assert asyncio.run(add.invoke({"a": 1})) == 1
    assert (loose.parameters(), asyncio.run(loose.invoke('{"x": 1}'))) == (schema, {"x": 1})
    with pytest.raises(ValueError, match="approval_mode"):
        tool(approval_mode="sometimes")(give)  # type: ignore[call-overload]


def nothing_needed() -> str:
    return "nothing needed"


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def up(self, by: int) -> int:
        """Count up."""
        self.count += by
        return self.count

    def __call__(self, by: int) -> int:
        return self.up(by)


class Arguments:
    """A type of the caller's with the name of our own."""


@pytest.mark.parametrize(
    ("function", "arguments", "result"),
    [
        (len, {"obj": [1, 2]}, 2),
        (Counter().up, {"by": 2}, 2),
        (Counter(), {"by": 3}, 3),
        (nothing_needed, None, "nothing needed"),
        (nothing_needed, "", "nothing needed"),
        (tool(name="short")(lambda: "nothing needed"), None, "nothing needed"),
    ],
    ids=["builtin", "method", "object", "no arguments", "empty arguments", "lambda"],
)
def test_any_callable_is_a_tool(function: Callable[..., Any], arguments: Any, result: Any) -> None:
    """Positional-only parameters, methods and objects that can be called."""
    made = function if isinstance(function, FunctionTool) else tool(function)
    assert asyncio.run(made.invoke(arguments)) == result


def counting() -> Iterator[int]:
    yield 1


async def counting_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: tool(lambda: None),
        lambda: FunctionTool(name="", func=nothing_needed),
        lambda: FunctionTool(name=7, func=nothing_needed),  # type: ignore[arg-type]
        lambda: tool(counting),
        lambda: tool(counting_later),
    ],
    ids=["lambda", "empty name", "number", "generator", "async generator"],
)
def test_what_no_model_could_call_is_refused_at_once(make: Callable[[], FunctionTool]) -> None:
    """A tool needs a name, and gives its result whole."""
    with pytest.raises(ConfigurationError, match="tool"):
        make()


def unresolved(a: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """A hint that nobody can find."""


def strange(a: Arguments) -> None:
    """A type that has no schema."""


@pytest.mark.parametrize("function", [unresolved, strange])
def test_parameters_without_a_schema_are_refused_at_once(function: Any) -> None:
    """`ConfigurationError` names the tool and says what to do; with a schema given it works."""
    with pytest.raises(ConfigurationError, match=f"'{function.__name__}'.*JSON schema"):
        tool(function)
    told = tool(schema={"type": "object"})(function)
    assert asyncio.run(told.invoke({"a": 1})) is None


def test_a_model_that_describes_itself_is_a_parameter() -> None:
    """Pydantic's: its schema is shown, and it checks what comes."""
    pydantic = pytest.importorskip("pydantic")

    model = pydantic.create_model("Point", x=(int, ...))

    def move(to: Any) -> int:
        return int(to.x)

    move.__annotations__["to"] = model
    made = tool(move)
    assert "x" in str(made.parameters())
    assert asyncio.run(made.invoke({"to": {"x": 4}})) == 4
    with pytest.raises(ValueError, match="x"):
        asyncio.run(made.invoke({"to": {"x": "four"}}))
