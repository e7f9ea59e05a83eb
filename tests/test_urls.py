"""Store URLs: taken apart once, options checked, secrets never shown."""

from __future__ import annotations

import traceback
from typing import Any, Literal

import msgspec
import pytest

from agentstore import ConfigurationError
from agentstore.urls import StoreURL, parse_url, read_options

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("url", "scheme", "host", "path"),
    [
        ("memory://", "memory", "", ""),
        ("memory://name", "memory", "name", ""),
        ("sqlite:///relative.db", "sqlite", "", "relative.db"),
        ("sqlite:///a/b/relative.db", "sqlite", "", "a/b/relative.db"),
        ("sqlite:////absolute.db", "sqlite", "", "/absolute.db"),
        ("sqlite:///C:/chats/chat.db", "sqlite", "", "C:/chats/chat.db"),
        ("sqlite:///a%20b%3F%23%2541.db", "sqlite", "", "a b?#%41.db"),
        ("sqlite:///gr\u00fc\u00df.db", "sqlite", "", "gr\u00fc\u00df.db"),
        ("sqlite:///me@home.db", "sqlite", "", "me@home.db"),
        ("sqlite:///a;b=c.db", "sqlite", "", "a;b=c.db"),
        ("postgresql://host:5432/db", "postgresql", "host:5432", "db"),
        ("postgresql:///db", "postgresql", "", "db"),
        ("redis://", "redis", "", ""),
        ("redis://[::1]:6379/0", "redis", "[::1]:6379", "0"),
        ("rediss://host", "rediss", "host", ""),
        ("redis+cluster://h1:1,h2:2", "redis+cluster", "h1:1,h2:2", ""),
        ("redis+sentinel://h1:1,h2:2/service", "redis+sentinel", "h1:1,h2:2", "service"),
        ("redis+cluster://[::1]:1,[::2]:2", "redis+cluster", "[::1]:1,[::2]:2", ""),
        ("redis+cluster://h1:1,[::2]:2", "redis+cluster", "h1:1,[::2]:2", ""),
        ("azblob://account/container", "azblob", "account", "container"),
        ("azblob://account/container/pre/fix", "azblob", "account", "container/pre/fix"),
        ("SQLite:///Chat.DB", "sqlite", "", "Chat.DB"),
        ("x.y-z+1://H", "x.y-z+1", "H", ""),
    ],
)
def test_every_kind_of_url_comes_apart(url: str, scheme: str, host: str, path: str) -> None:
    """Scheme folded, host as written, path percent-decoded once, nobody logged in."""
    assert parse_url(url) == StoreURL(scheme, host, path)


@pytest.mark.parametrize(
    ("written", "user", "password"),
    [
        ("app@", "app", None),
        ("app:@", "app", ""),
        ("app:pw@", "app", "pw"),
        (":pw@", "", "pw"),
        ("@", "", None),
        ("app:p%40%3A%2F%3F%23%25@", "app", "p@:/?#%"),
        ("app:p@ss@", "app", "p@ss"),
        ("app:p:w@", "app", "p:w"),
        ("a%40b:pw@", "a@b", "pw"),
        ("app:p%5Bw%5D@", "app", "p[w]"),
        ("app:gr\u00fc\u00df@", "app", "gr\u00fc\u00df"),
    ],
)
def test_user_and_password_are_percent_decoded(written: str, user: str, password: str | None) -> None:
    """A raw `@` or `:` in a password is understood; `/`, `?` and `#` must be percent-encoded."""
    parsed = parse_url(f"postgresql://{written}host:1/db")
    assert (parsed.user, parsed.password, parsed.host, parsed.path) == (user, password, "host:1", "db")


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {}),
        ("?", {}),
        ("?a=1", {"a": "1"}),
        ("?a=", {"a": ""}),
        ("?a=1&b=x%26y%3D%2B", {"a": "1", "b": "x&y=+"}),
        ("?a=b=c", {"a": "b=c"}),
        ("?A=1&a=2", {"A": "1", "a": "2"}),
    ],
)
def test_query_parameters_are_options(query: str, options: dict[str, str]) -> None:
    """Percent-decoded once; case counts."""
    assert parse_url("sqlite:///a.db" + query).options == options


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://app:{SECRET}@host/db",
        f"postgresql://{SECRET}@host/db",
        f"redis://:{SECRET}@host",
        f"redis://host?password={SECRET}",
        f"azblob://account/container?sas_token={SECRET}",
    ],
)
def test_a_parsed_url_never_shows_a_secret(url: str) -> None:
    """Neither in `repr` nor in `str` nor in a format string: user, password and option values are hidden."""
    parsed = parse_url(url)
    assert SECRET not in repr(parsed) + str(parsed) + f"{parsed}" + repr([parsed])


def told(error: BaseException) -> str:
    """Everything that a log or an error tracker could show of an error: texts of causes and contexts too."""
    texts: list[str] = []
    seen: BaseException | None = error
    while seen is not None:
        texts += [str(seen), repr(seen)]
        seen = seen.__cause__ or seen.__context__
    return "".join([*texts, *traceback.format_exception(error)])


BROKEN = [
    SECRET,
    "",
    f"postgresql:app:{SECRET}@host/db",
    f"post gresql://app:{SECRET}@host/db",
    f"://app:{SECRET}@host",
    f"1sql://app:{SECRET}@host",
    f" redis://:{SECRET}@host",
    f"redis://:{SECRET}@[::1",
    f"redis://:{SECRET}]@host",
    f"redis://:{SECRET}\u2100@host",  # an account-of sign, which Unicode takes apart into a/c
    f"redis://:{SECRET}%FF@host",
    f"redis://:{SECRET}\t@host",
    f"redis://:{SECRET} @host",
    f"redis://:{SECRET}#x@host",
    f"redis://:{SECRET}/x@host",
    f"redis://:{SECRET}?x@host",
    f"redis://:{SECRET}?x=1@host",
    f"postgresql://app:{SECRET}/x@host/db",
    f"postgresql://me@corp:{SECRET}/x@host/db",
    f"postgresql://app:{SECRET}/x@y@host/db",
    f"redis://host?{SECRET}",
    f"redis://host?password={SECRET}&password={SECRET}",
    f"redis://host?password={SECRET}%FF",
    f"redis://host?password={SECRET}#fragment",
    f"sqlite:///%FF{SECRET}.db",
    f"sqlite:///a\n{SECRET}.db",
]


@pytest.mark.parametrize("url", BROKEN, ids=ascii)
def test_what_is_no_url_is_refused_without_repeating_it(url: str) -> None:
    """A URL that cannot be understood may hold a password anywhere."""
    with pytest.raises(ConfigurationError) as caught:
        parse_url(url)
    lines = [line for line in told(caught.value).splitlines() if "parse_url(" not in line]
    assert SECRET not in "".join(lines)


@pytest.mark.parametrize("url", [None, b"memory://", 5, ["memory://"]])
def test_a_url_is_text(url: Any) -> None:
    """Anything else is a `TypeError` that names its type."""
    with pytest.raises(TypeError, match=type(url).__name__):
        parse_url(url)


def test_an_option_given_twice_is_refused() -> None:
    """Neither the first nor the last wins in silence."""
    with pytest.raises(ConfigurationError, match="twice"):
        parse_url("sqlite:///a.db?timeout=1&timeout=2")


class Options(msgspec.Struct, frozen=True):
    timeout: float = 10.0
    size: int = 5
    mode: Literal["full", "normal"] = "full"
    password: str | None = None
    client: Any = None


def test_options_come_from_url_and_keywords() -> None:
    """Texts of the URL are converted; keywords keep their objects; what is not given has its default."""
    client = object()
    options = read_options(Options, parse_url("x://?timeout=2.5&size=7"), {"mode": "normal", "client": client})
    assert options == Options(2.5, 7, "normal", None, client)
    assert options.client is client
    assert read_options(Options, parse_url("x://"), {}) == Options()


@pytest.mark.parametrize("where", ["url", "keyword"])
def test_an_unknown_option_is_refused_with_the_known_ones(where: str) -> None:
    """A misspelt option never counts as not given."""
    url, keywords = ("x://?time_out=1", {}) if where == "url" else ("x://", {"time_out": 1})
    with pytest.raises(ConfigurationError, match=r"unknown option time_out for x://; known: .*timeout.*client"):
        read_options(Options, parse_url(url), keywords)


def test_an_option_in_both_places_is_refused() -> None:
    """Also when both say the same."""
    with pytest.raises(ConfigurationError, match="timeout is given in the URL and as a keyword"):
        read_options(Options, parse_url("x://?timeout=1"), {"timeout": 1.0})


@pytest.mark.parametrize(
    ("url", "keywords", "name"),
    [
        ("x://?timeout=soon", {}, "timeout"),
        ("x://?timeout=", {}, "timeout"),
        ("x://?size=1.5", {}, "size"),
        ("x://?mode=half", {}, "mode"),
        ("x://", {"size": "many"}, "size"),
        ("x://", {"password": 5}, "password"),
        ("x://", {"timeout": object()}, "timeout"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_name(url: str, keywords: dict[str, Any], name: str) -> None:
    """The error is ours, and says which option it is."""
    with pytest.raises(ConfigurationError, match=rf"x://.*{name}"):
        read_options(Options, parse_url(url), keywords)


def test_a_wrong_option_does_not_repeat_its_value() -> None:
    """It may be a secret that was put in the wrong place."""
    with pytest.raises(ConfigurationError) as caught:
        read_options(Options, parse_url(f"x://?size={SECRET}"), {})
    assert SECRET not in str(caught.value)
