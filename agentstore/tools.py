"""Function tools: a plain callable, what the model is told about it, and how it is called."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints, overload

import msgspec

from agentstore.errors import ConfigurationError

ApprovalMode = Literal["never_require", "always_require"]

_CONTEXT = "FunctionInvocationContext"  # a parameter of this type gets the call's context, unseen by the model


class ArgumentsError(ValueError):
    """The arguments of a call are no JSON object, or do not fit the tool's parameters."""


class FunctionTool:
    """A function that a model may call, made of a plain callable, sync or async.

    The parameters come from the function's type hints; a text (or an object with a `description`) in `Annotated[...]`
    describes one. `input_model`, a JSON schema, stands in for the hints: then arguments are passed on as the model
    gave them. A parameter typed `FunctionInvocationContext` gets the running call's, and the model does not see it.
    A sync function runs in a thread, so that it may block. With `approval_mode="always_require"` a call waits until the
    user has approved it. Raises `ConfigurationError` for hints of which no schema can be made, for a generator, and
    without a name.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str = "",
        func: Callable[..., Any],
        input_model: Mapping[str, Any] | None = None,
        approval_mode: ApprovalMode | None = None,
    ) -> None:
        if approval_mode not in (None, "never_require", "always_require"):
            raise ValueError("approval_mode must be 'never_require' or 'always_require'")
        if type(name) is not str or name in ("", "<lambda>"):
            raise ConfigurationError(f"a tool needs a name to be called by, not {name!r}: give one with tool(name=...)")
        if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise ConfigurationError(f"tool {name!r} is a generator; a tool returns its result, whole")
        self.name = name
        self.description = description
        self.func = func
        self.approval_mode: ApprovalMode = approval_mode or "never_require"
        self._signature: _Signature | None
        self._struct: type[msgspec.Struct] | None = None
        if input_model is None:
            self._signature, self._struct, self._schema = _typed(name, func)
        else:
            self._signature, self._schema = _untyped(func), dict(input_model)

    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, an object; a new one each time."""
        return copy.deepcopy(self._schema)

    def to_json_schema_spec(self) -> dict[str, Any]:
        """The tool as most model services take it: `{"type": "function", "function": {...}}`."""
        about = {"name": self.name, "description": self.description, "parameters": self.parameters()}
        return {"type": "function", "function": about}

    def parse(self, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments of a call, as values of the parameters' types.

        Raises `ArgumentsError` where they are no JSON object or do not fit the parameters.
        """
        given = as_mapping(arguments)
        if self._struct is None:
            return given
        if unknown := [name for name in given if name not in self._struct.__struct_fields__]:
            raise ArgumentsError(f"there is no parameter {', '.join(map(repr, unknown))}")
        try:
            values = msgspec.convert(given, self._struct, strict=False, dec_hook=_validated)
        except ValueError as error:
            raise ArgumentsError(str(error)) from error
        return {name: getattr(values, name) for name in given}

    async def invoke(self, arguments: str | Mapping[str, Any] | None = None, *, context: Any = None) -> Any:
        """What the function returns for these arguments; raises `ArgumentsError` for bad ones, and what it raises."""
        values = self.parse(arguments)
        args, kwargs = ([], values) if self._signature is None else self._signature.arranged(values, context)
        if inspect.iscoroutinefunction(self.func):
            return await self.func(*args, **kwargs)
        result = await asyncio.to_thread(_called, self.func, args, kwargs)
        return await result if inspect.isawaitable(result) else result

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.func(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.name!r})"


@overload
def tool(func: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    approval_mode: ApprovalMode | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    func: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: Mapping[str, Any] | None = None,
    approval_mode: ApprovalMode | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool; a decorator, with or without arguments.

    Name and description are the function's own and its docstring, unless given; `schema` is `input_model` of
    `FunctionTool`.
    """

    def made(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(
            name=name or _name_of(function),
            description=inspect.getdoc(function) or "" if description is None else description,
            func=function,
            input_model=schema,
            approval_mode=approval_mode,
        )

    return made if func is None else made(func)


def as_tools(given: Any) -> list[Any]:
    """The tools as a client gets them: callables as `FunctionTool`, each once, mappings (a service's own) as they are.

    One tool counts as a list of one. Raises `ConfigurationError` where two tools have one name.
    """
    one = callable(given) or not isinstance(given, Iterable) or isinstance(given, Mapping)
    offered = [given] if one and given is not None else list(given or ())
    tools = [item if isinstance(item, FunctionTool | Mapping) else _made(item) for item in offered]
    known: dict[str, Any] = {}
    for item in tools:
        name = tool_name(item)
        other = known.setdefault(name, item) if name else item
        if getattr(other, "func", other) != getattr(item, "func", item):  # a method is a new object each time
            raise ConfigurationError(f"two tools have the name {name!r}")
    return [item for item in tools if known.get(tool_name(item) or "", item) is item]


def _made(item: Any) -> FunctionTool:
    if not callable(item):
        raise TypeError(f"a tool is a callable, a FunctionTool or a service's own as a mapping, not {item!r}")
    return tool(item)


def tool_name(item: Any) -> str | None:
    """The name under which a model calls the tool, if it has one."""
    name = item.get("name") if isinstance(item, Mapping) else getattr(item, "name", None)
    return name if isinstance(name, str) else None


def as_mapping(arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call, which come as JSON text or as a mapping; raises `ArgumentsError` for what is neither."""
    try:
        given = json.loads(arguments.strip() or "{}") if isinstance(arguments, str) else arguments or {}
    except ValueError as error:
        raise ArgumentsError(str(error)) from error
    if not isinstance(given, Mapping):
        raise ArgumentsError("the arguments of a call must be a JSON object")
    return dict(given)


class _Signature:
    """The parameters of a function: which of them the model fills, and how they are passed."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self._parameters = list(inspect.signature(func).parameters.values())
        # A callable object has its hints on its method.
        self._hints = get_type_hints(func if hasattr(func, "__name__") else type(func).__call__, include_extras=True)
        named = [item for item in self._parameters if item.kind not in (item.VAR_POSITIONAL, item.VAR_KEYWORD)]
        self._context = next((item.name for item in named if self._is_context(item)), None)
        self._filled = [item for item in named if item.name != self._context]

    def struct(self) -> type[msgspec.Struct]:
        """A type that checks and converts the arguments."""
        fields: list[Any] = []
        for item in self._filled:
            hint = _described(self._hints.get(item.name, Any))
            default = msgspec.UNSET if item.default is not item.empty else msgspec.NODEFAULT
            fields.append((item.name, hint, default) if default is msgspec.UNSET else (item.name, hint))
        return msgspec.defstruct("Arguments", fields, kw_only=True)

    def arranged(self, values: dict[str, Any], context: Any) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments of the call."""
        if self._context:
            values = {**values, self._context: context}
        positional = [item.name for item in self._parameters if item.kind is item.POSITIONAL_ONLY]
        args = [values.pop(name) for name in positional if name in values]
        return args, values

    def _is_context(self, parameter: inspect.Parameter) -> bool:
        return getattr(self._hints.get(parameter.name), "__name__", None) == _CONTEXT


def _described(hint: Any) -> Any:
    """The hint with its first description in the form that makes it into the schema."""
    if get_origin(hint) is not Annotated:
        return Any if hint is object else hint
    kind, *notes = get_args(hint)
    kept = [note for note in notes if isinstance(note, msgspec.Meta)]
    texts = [note if isinstance(note, str) else getattr(note, "description", None) for note in notes]
    kept += [msgspec.Meta(description=text) for text in texts if isinstance(text, str)][:1]
    for note in kept:
        kind = Annotated[kind, note]
    return kind


def _typed(name: str, func: Callable[..., Any]) -> tuple[_Signature, type[msgspec.Struct], dict[str, Any]]:
    try:
        signature = _Signature(func)
        struct = signature.struct()
        return signature, struct, _schema_of(struct)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the parameters of tool {name!r} cannot be described to a model ({error}): give them types that JSON "
            "knows, or a JSON schema"
        ) from error


def _untyped(func: Callable[..., Any]) -> _Signature | None:
    """The function's parameters, where Python can tell them; the caller's schema says what the model is told."""
    try:
        return _Signature(func)
    except (NameError, TypeError, ValueError):
        return None


def _schema_of(struct: type[msgspec.Struct]) -> dict[str, Any]:
    (schema,), named = msgspec.json.schema_components([struct], schema_hook=_own_schema)
    schema = named.pop(schema["$ref"].rpartition("/")[2])
    schema.pop("title", None)
    return {**schema, "additionalProperties": False, **({"$defs": named} if named else {})}


def _own_schema(kind: type) -> dict[str, Any]:
    if not hasattr(kind, "model_json_schema"):  # how pydantic's models describe themselves
        raise NotImplementedError
    schema: dict[str, Any] = kind.model_json_schema()
    return schema


def _called(func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    try:
        return func(*args, **kwargs)
    except StopIteration as error:  # no future can hold one: whoever waits for it would wait for ever
        raise RuntimeError("the function raised StopIteration") from error


def _validated(kind: type, value: Any) -> Any:
    return kind.model_validate(value)  # type: ignore[attr-defined]


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None) or type(function).__name__
    return str(name)
