"""Who may use the container: keys, SAS tokens, connection strings, clients handed in; and no secret is shown."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from azblob_scene import account, new_container, opened, run
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import ContainerClient, ContainerSasPermissions, generate_container_sas
from azure.storage.blob.aio import ContainerClient as AsyncContainerClient
from azurite_proxy import proxied
from azurite_server import connection_string

from agentstore import ConfigurationError, HistoryStore, SessionHistory, open_store
from agentstore.testing.scenes import LONG_AGO, heard, said
from agentstore_azblob import AzureBlobBackend

VARIABLES = ("CONNECTION_STRING", "KEY", "SAS_TOKEN")
WRONG_KEY = "d3Jvbmcta2V5LXdyb25nLWtleQ=="


@pytest.fixture
def container() -> Generator[ContainerClient]:
    with new_container() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of this machine."""
    for name in VARIABLES:
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)


def key() -> str:
    return connection_string().partition("AccountKey=")[2].partition(";")[0]


def endpoint() -> str:
    """A connection string that says where the account is, and nothing else."""
    return ";".join(part for part in connection_string().split(";") if not part.startswith("AccountKey="))


def sas(container: ContainerClient, permissions: str = "racwdl", **options: Any) -> str:
    return generate_container_sas(
        account(),
        container.container_name,
        account_key=options.pop("account_key", key()),
        permission=ContainerSasPermissions.from_string(permissions),
        expiry=options.pop("expiry", datetime.now(timezone.utc) + timedelta(hours=1)),
    )


def url(container: ContainerClient) -> str:
    return f"azblob://{account()}/{container.container_name}"


async def works(store: HistoryStore) -> None:
    async with store:
        await store.setup()
        chat = store.session("s")
        await chat.append(said("a"))
        assert await heard(chat) == ["a"]
        await chat.delete()


@pytest.mark.parametrize("kind", ["key", "key object", "sas", "sas with ?", "sas object"])
def test_a_credential_that_is_given_is_used(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As text or as the SDK's object; the environment's connection string only says where the account is."""
    given = {
        "key": key(),
        "key object": AzureNamedKeyCredential(account(), key()),
        "sas": sas(container),
        "sas with ?": f"?{sas(container)}",
        "sas object": AzureSasCredential(sas(container)),
    }[kind]
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", endpoint())
    run(works(open_store(url(container), credential=given)))


@pytest.mark.parametrize("kind", ["connection string", "key", "sas", "connection string with a sas"])
def test_a_credential_is_found_in_the_environment(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """`AZURE_STORAGE_CONNECTION_STRING`, else `AZURE_STORAGE_KEY`, else `AZURE_STORAGE_SAS_TOKEN`."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", endpoint())
    if kind == "connection string":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string())
    elif kind == "key":
        monkeypatch.setenv("AZURE_STORAGE_KEY", key())
    elif kind == "sas":
        monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", sas(container))
    else:
        monkeypatch.setenv(
            "AZURE_STORAGE_CONNECTION_STRING", f"{endpoint()};SharedAccessSignature={sas(container)}".replace(";;", ";")
        )
    run(works(open_store(url(container))))


def test_another_account_than_the_connection_strings_is_refused(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before any request, and both are named."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection_string())
    with pytest.raises(ConfigurationError, match=rf"otheraccount.*{account()}|{account()}.*otheraccount"):
        open_store(f"azblob://otheraccount/{container.container_name}")


@pytest.mark.parametrize(
    "text", ["", "nonsense", "AccountName=a", "AccountName=a;AccountKey=s3cret==", "BlobEndpoint=;AccountKey=s3cret"]
)
def test_a_broken_connection_string_is_an_error_that_shows_none_of_it(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """`ConfigurationError` when the store is made or first used, without the text."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
    monkeypatch.setenv("AZURE_STORAGE_KEY", "s3cret, and no base64")
    with pytest.raises(ConfigurationError) as caught:
        run(works(open_store(f"azblob://{account()}/somewhere")))
    _shows_no(caught.value, "s3cret")


def test_a_connection_string_is_no_credential() -> None:
    """It is refused at once, and the error says where it goes."""
    with pytest.raises(ConfigurationError, match="AZURE_STORAGE_CONNECTION_STRING") as caught:
        open_store(f"azblob://{account()}/somewhere", credential="AccountName=a;AccountKey=s3cret==")
    _shows_no(caught.value, "s3cret")


@pytest.mark.parametrize(
    "bad",
    [
        "azblob://",
        "azblob:///container",
        "azblob://account",
        "azblob://account/",
        "azblob://UPPER/container",
        "azblob://account/Upper",
        "azblob://account/a--b",
        "azblob://account/ab",
        "azblob://key:s3cret@account/container",
        "azblob://account/container?sig=s3cret",
        "azblob://account/container?unknown=1",
        "azblob://account/container/pre?prefix=other",
        "azblob://account/container/../other",
        "azblob://account/container?max_blocks=0",
        "azblob://account/container?max_blocks=50001",
        "azblob://account/container?timeout=0",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(bad: str) -> None:
    """With a reason, before any request, and without a secret."""
    with pytest.raises(ConfigurationError) as caught:
        open_store(bad, credential=WRONG_KEY)
    _shows_no(caught.value, "s3cret")


def _shows_no(error: BaseException | None, secret: str) -> None:
    while error:
        assert secret not in repr(error)
        assert secret not in str(vars(error))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("kind", ["key", "sas", "expired sas", "sas without permission"])
def test_a_refused_credential_is_never_shown(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Not by errors or their causes, not by `repr`, not in a log; and it is a `ConfigurationError` (B118)."""
    credential = {
        "key": WRONG_KEY,
        "sas": sas(container, account_key=WRONG_KEY),
        "expired sas": sas(container, expiry=LONG_AGO + timedelta(days=1)),
        "sas without permission": sas(container, "l"),
    }[kind]
    secret = credential.partition("sig=")[2].partition("&")[0] or credential
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", endpoint())

    async def main() -> None:
        store = open_store(url(container), credential=credential)
        assert secret not in repr(store)
        for call in (store.open, store.ping, store.setup, lambda: store.session("s").append(said("a")), store.sessions):
            with pytest.raises(ConfigurationError) as caught:
                await call()
            _shows_no(caught.value, secret)
        await store.aclose()

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert secret not in caplog.text


def test_an_unreachable_service_never_shows_the_sas(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The SDK's own texts hold the URL of the request, signature and all."""
    token = sas(container)
    secret = token.partition("sig=")[2].partition("&")[0]

    async def main() -> None:
        async with proxied() as proxy:
            place = ";".join(part for part in proxy.connection_string.split(";") if not part.startswith("AccountKey="))
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", place)
            async with open_store(url(container), credential=token, timeout=0.3) as store:
                await store.setup()
                for fate in ("cut", "lose", "babble", 503, 404, 400):
                    proxy.fate = lambda request, fate=fate: fate  # type: ignore[assignment, misc]
                    for call in (store.ping, lambda: store.session("s").append(said("a"))):
                        error = await _raised(call)
                        _shows_no(error, secret)

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert secret not in caplog.text


async def _raised(call: Callable[[], Awaitable[Any]]) -> BaseException | None:
    try:
        await call()
    except Exception as error:  # whatever it is, it shows nothing
        return error
    return None


def test_a_client_that_is_handed_in_is_used_and_left_open(container: ContainerClient) -> None:
    """Bring your own `ContainerClient`: it works afterwards, and another loop is refused."""

    async def main() -> None:
        async with AsyncContainerClient.from_connection_string(connection_string(), container.container_name) as client:
            for number in range(2):
                store = HistoryStore(AzureBlobBackend(container_client=client, prefix=f"p{number}"))
                await works(store)
                assert await client.exists()

    run(main())


def test_a_client_that_is_handed_in_is_tried_again_by_our_rules(container: ContainerClient) -> None:
    """Its own policy would wait for 15 s before it tries again; here that does not count."""

    async def main() -> None:
        async with (
            proxied() as proxy,
            AsyncContainerClient.from_connection_string(proxy.connection_string, container.container_name) as client,
        ):
            store = HistoryStore(AzureBlobBackend(container_client=client))
            await store.session("s").append(said("a"))
            begun = time.monotonic()
            for work in (lambda: store.session("s").append(said("b")), lambda: heard(store.session("s")), store.ping):
                proxy.next(503, of=lambda request: True)
                await work()
            proxy.next(503, of=lambda request: request.lists)
            await store.sessions()
            assert time.monotonic() - begun < 10

    run(main())


def test_a_client_that_is_handed_in_belongs_to_one_loop(container: ContainerClient) -> None:
    """In another loop every call raises `ConfigurationError` (B119)."""
    clients: list[AsyncContainerClient] = []

    async def first() -> HistoryStore:
        clients.append(AsyncContainerClient.from_connection_string(connection_string(), container.container_name))
        store = HistoryStore(AzureBlobBackend(container_client=clients[0]))
        await store.session("s").append(said("a"))
        return store

    async def second(store: HistoryStore) -> None:
        with pytest.raises(ConfigurationError, match="loop"):
            await heard(store.session("s"))

    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(first())
    asyncio.run(second(store))
    loop.run_until_complete(clients[0].close())
    loop.close()


Work = Callable[[SessionHistory], Awaitable[Any]]

LEAST = {
    "r": lambda chat: heard(chat),
    "ra": lambda chat: chat.append(said("b")),
    "racw": lambda chat: chat.fork(f"{os.urandom(4).hex()}"),
    "racwd": lambda chat: chat.delete(),
}
"""The table of docs/azure-blob.md: which permissions of a SAS on the container each kind of work needs."""


@pytest.mark.parametrize("permissions", LEAST)
def test_a_sas_needs_no_more_than_the_documented_permissions(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, permissions: str
) -> None:
    """In a container that is set up, an agent works with `racwd`, a reader with `r`."""

    async def main() -> None:
        async with opened(container.container_name) as owner:
            await owner.session("s").append(said("a"))
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", endpoint())
        async with open_store(url(container), credential=sas(container, permissions)) as store:
            await LEAST[permissions](store.session("s"))

    run(main())


@pytest.mark.parametrize("permissions", ["r", "ra"])
def test_a_sas_that_may_too_little_is_a_configuration_error(
    container: ContainerClient, monkeypatch: pytest.MonkeyPatch, permissions: str
) -> None:
    """It names what was refused, and nothing is half done."""

    async def main() -> None:
        async with opened(container.container_name) as owner:
            await owner.session("s").append(said("a"))
            monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", endpoint())
            async with open_store(url(container), credential=sas(container, permissions)) as store:
                for call in (lambda: store.session("s").delete(), lambda: store.session("new").append(said("a"))):
                    with pytest.raises(ConfigurationError, match=r"(?i)permission|auth"):
                        await call()
            assert await heard(owner.session("s")) == ["a"]
            assert await heard(owner.session("new")) == []

    run(main())


def test_a_container_that_is_missing_is_made_only_where_that_is_wanted(container: ContainerClient) -> None:
    """`auto_setup=False`: reads find nothing, writes are refused, and no container appears."""
    name = f"{container.container_name}-not"

    async def main() -> None:
        async with opened(name, auto_setup=False) as store:
            assert await heard(store.session("s")) == []
            assert (await store.sessions()).items == []
            with pytest.raises(ConfigurationError, match="setup"):
                await store.session("s").append(said("a"))
        missing = ContainerClient.from_connection_string(connection_string(), name)
        with missing:
            assert not missing.exists()
            async with opened(name) as store:
                await works(store)
            missing.delete_container()

    run(main())
