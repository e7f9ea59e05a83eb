"""Store URLs: one pure function takes them apart, one checks their options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from agentstore.errors import ConfigurationError

T = TypeVar("T", bound=msgspec.Struct)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_UNSAFE = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class StoreURL:
    """A store's address in parts. Its `repr` and `str` never show the user, the password or an option's value."""

    scheme: str
    host: str
    """What stands between `//` and the next `/`, without user and password: `h1:1,h2:2`, an account, a name, or ''."""
    path: str
    """What follows the host's `/`, percent-decoded: `relative.db`, `/absolute.db`, `database`."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The query parameters."""

    def __str__(self) -> str:
        user = "***@" if self.user is not None or self.password is not None else ""
        query = "?" + "&".join(f"{name}=***" for name in self.options) if self.options else ""
        return f"{self.scheme}://{user}{self.host}/{self.path}{query}"


def parse_url(url: str) -> StoreURL:
    """Take a store URL apart; raises `ConfigurationError` (without repeating the text) where it is not one."""
    if type(url) is not str:
        raise TypeError(f"url must be a str, not {type(url).__name__}")
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        raise ConfigurationError("a store URL looks like sqlite:///chat.db or redis://host: SCHEME:// is missing")
    parsed = _parsed(scheme.lower(), rest)
    # Raised out here: an error of the parser would carry the text, and any password in it, as its context.
    if isinstance(parsed, str):
        raise ConfigurationError(f"the {scheme} URL {parsed}")
    return parsed


def _parsed(scheme: str, rest: str) -> StoreURL | str:
    """The parts, or what is wrong with them."""
    if _UNSAFE.search(rest):
        return "has a control character: percent-encode it"
    try:
        # The scheme is swapped: urlsplit treats brackets, fragments and relative paths differently for some.
        parts = urlsplit("store://" + rest)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query), errors="strict")
        credentials, at, host = parts.netloc.rpartition("@")
        user, colon, password = [unquote(part, errors="strict") for part in credentials.partition(":")]
        path = unquote(parts.path[1:], errors="strict")
    except ValueError:
        return "cannot be parsed: check its host, its query and its percent-encoding"
    if " " in parts.netloc:
        return "has a space before its path: percent-encode it"
    if parts.fragment:
        return "has a '#': write it as %23"
    if host and "@" in rest.removeprefix(parts.netloc):
        return "has an '@' behind its host: percent-encode / and ? in a password, and @ elsewhere"
    if len(dict(pairs)) != len(pairs):
        return "gives an option twice"
    return StoreURL(scheme, host, path, user if at else None, password if colon else None, dict(pairs))


def read_options(kind: type[T], url: StoreURL, keywords: Mapping[str, Any]) -> T:
    """The backend's options, from the URL's query parameters and the keywords, checked and converted.

    `kind` is a struct whose fields are the known options. Raises `ConfigurationError` for an unknown option (naming
    the known ones), one given in both places, or one of the wrong type.
    """
    known = list(kind.__struct_fields__)
    given = {**url.options, **keywords}
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigurationError(
            f"unknown option {', '.join(unknown)} for {url.scheme}://; known: {', '.join(known) or 'none'}"
        )
    if twice := sorted(set(url.options) & set(keywords)):
        raise ConfigurationError(f"option {', '.join(twice)} is given in the URL and as a keyword: choose one")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"bad option for {url.scheme}://: {error}") from error
