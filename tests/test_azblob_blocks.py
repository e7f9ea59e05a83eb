"""The form of Azure Blob logs: blocks read from their end, paths that can be searched, names, runs of ids."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstore import SessionKey
from agentstore.backend import Record, Written
from agentstore_azblob_blocks import (
    FRAME_RECORDS,
    Answer,
    Link,
    ShortError,
    State,
    below,
    cut,
    decode_entries,
    log_mark,
    places,
    read_header,
)
from agentstore_azblob_container import Clock
from agentstore_azblob_frames import Block, Pushed
from agentstore_azblob_ids import parse_runs, runs
from agentstore_azblob_names import Names, key_text, parse_key

BORN = b"incarnat"
STATE = State(BORN, ("log",), 0, 0)
ids = st.text(min_size=1, max_size=40).filter(lambda text: not re.search("[\ud800-\udfff]", text))
keys = st.builds(SessionKey, ids, ids, ids)


def pushed(first: int, payloads: Sequence[bytes]) -> list[Pushed]:
    return [Pushed(n, 7, Record(os.urandom(16), bytes(16), "f/1", p)) for n, p in enumerate(payloads, first)]


def written(offset: int, records: Sequence[Pushed], top: Link | None, links: list[Link]) -> tuple[bytes, Block]:
    block = Block("log", 0, offset, BORN)
    block.token, block.top, block.links = bytes(16), top, links
    block.push(records)
    return block.close(STATE, None, None)[0], block


@given(st.lists(st.binary(max_size=50), max_size=3 * FRAME_RECORDS))
def test_a_block_is_read_from_its_end(payloads: list[bytes]) -> None:
    """Every frame is found from the one above it, and every payload at its place."""
    records = pushed(1, payloads)
    data, block = written(0, records, None, [])
    found: list[bytes] = []
    link = block.top
    while link is not None:
        read = read_header(data[: link.end], link.end, log_mark("log") + BORN)
        assert read is not None
        header, head, size = read
        assert (head, size) == (link.head, link.size)
        entries = decode_entries(data[link.end - head - header.index : link.end - head])
        found[:0] = [data[place : place + entry.size] for entry, place in places(link, entries)]
        assert all(zlib.crc32(data[place : place + e.size]) == e.crc for e, place in places(link, entries))
        link = header.links[0] if header.links else None
    assert found == payloads
    assert (
        (block.top.count, block.top.payload) == (len(records), sum(map(len, payloads))) if block.top else not payloads
    )


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_changed_header_is_no_header(place: int, bit: int) -> None:
    """Whatever bit of a header or trailer is flipped, it is not taken for one of ours."""
    data, block = written(0, pushed(1, [b"payload"]), None, [])
    assert block.top is not None
    place = len(data) - 1 - place % block.top.head
    broken = bytearray(data)
    broken[place] ^= 1 << bit
    try:
        read = read_header(bytes(broken), len(data), log_mark("log") + BORN)
    except ShortError:
        return
    assert read is None or read[2] != len(data)


def test_a_frame_of_another_log_or_incarnation_is_not_ours() -> None:
    """The marker names both."""
    data, _ = written(0, pushed(1, [b"payload"]), None, [])
    for mark in (log_mark("other") + BORN, log_mark("log") + b"another "):
        assert read_header(data, len(data), mark) is None


def path(length: int) -> dict[int, list[Link]]:
    """The links of each frame of a path, by depth."""
    links: dict[int, list[Link]] = {}
    top: Link | None = None
    for depth in range(1, length + 1):
        links[depth] = below(links[top.depth] if top else [], top)
        top = Link(0, depth * 10, 10, 5, depth, depth, depth, 0)
    return links


def test_any_frame_is_reached_in_few_steps() -> None:
    """Each step settles a digit to the base of 4: 7 for 10,000 turns, and a frame has few links."""
    links = path(10_000)
    for target in (1, 2, 3, 63, 64, 65, 4_095, 4_096, 5_555, 9_998):
        depth, steps = 10_000, 0
        while found := [link.depth for link in links[depth] if link.depth >= target]:
            depth, steps = found[-1], steps + 1
        assert depth == target
        assert steps <= 8
    assert max(map(len, links.values())) <= 3 * 7 + 2


@given(st.integers(3, 300))
def test_a_frame_leads_to_the_two_below_it(depth: int) -> None:
    """So one broken frame hides none."""
    assert [link.depth for link in path(depth)[depth]][:2] == [depth - 1, depth - 2]


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=FRAME_RECORDS), st.integers(0, FRAME_RECORDS))
def test_a_cut_frame_counts_what_is_left(payloads: list[bytes], last: int) -> None:
    """Count, last seq and bytes are those of the records up to the cut; nothing left is no link."""
    records = pushed(1, payloads)
    _, block = written(0, records, None, [])
    assert block.top is not None
    kept = cut(block.top, [one.entry() for one in records], last)
    rest = payloads[:last]
    assert (kept is None) == (not rest)
    if kept is not None:
        assert (kept.count, kept.last, kept.payload) == (len(rest), len(rest), sum(map(len, rest)))


@given(st.lists(st.integers(1, 50)))
def test_an_answer_comes_back(seqs: list[int]) -> None:
    """Its seqs are kept as runs."""
    answer = Written(seqs, 2, 3)
    assert Answer.of(answer).given() == answer


@given(st.dictionaries(st.integers(1, 60), st.binary(min_size=16, max_size=16)))
def test_runs_of_ids_come_back(found: dict[int, bytes]) -> None:
    """Whatever gaps the seqs have; 16 bytes a record and a few for each gap."""
    by_id = {id_hash: seq for seq, id_hash in found.items()}
    data = runs(sorted((seq, id_hash) for id_hash, seq in by_id.items()))
    assert parse_runs(data) == by_id
    assert parse_runs(runs((n, n.to_bytes(16, "big")) for n in range(1, 1001)))[(7).to_bytes(16, "big")] == 7
    assert len(runs((n, bytes(16)) for n in range(1, 1001))) == 16_012


def test_an_id_has_the_highest_seq_that_it_got() -> None:
    """Two writers may bring the log of ids up to date at once: the later run can be the older one."""
    newer, older = runs([(95, bytes(16))]), runs([(90, bytes(16)), (91, b"other" * 3 + b"!")])
    assert parse_runs(newer + older)[bytes(16)] == 95
    assert parse_runs(older + newer)[bytes(16)] == 95


@given(keys, keys)
def test_names_are_legal_and_differ(one: SessionKey, other: SessionKey) -> None:
    """Legal for any id, different for different keys, also where case is folded; and the key comes back (B89, B90)."""
    names = Names("team/x")
    for key in (one, other):
        assert re.fullmatch(r"team/x/v1/[a-z0-9_-]+/[a-z0-9._-]+-[0-9a-f]{32}", names.root(key))
        assert parse_key(key_text(key)) == key
        assert key_text(key).isascii()
        assert names.root(key).startswith(names.namespace(key.namespace))
    assert (names.root(one) == names.root(other)) == (one == other)


def test_the_longest_key_fits_into_a_header() -> None:
    """Three ids of 1,024 bytes: a blob's metadata takes 8 KiB."""
    key = SessionKey("\0" * 1024, "é" * 512, "/" * 1024)
    assert len(key_text(key)) < 5000
    assert parse_key(key_text(key)) == key
    assert len(Names("p" * 400).root(key)) < 1000


@pytest.mark.parametrize("text", ["", "?", "AAAA", "k5Gho2FhYWE=", "é"])
def test_what_is_no_key_is_refused(text: str) -> None:
    """A stranger's metadata is not taken for a key."""
    with pytest.raises(ValueError):  # noqa: PT011
        parse_key(text)


@pytest.mark.parametrize(("behind", "expected"), [(0, 0), (3600, 3600), (-3600, -3600)])
def test_the_clock_is_set_right_by_the_services_date(behind: int, expected: int) -> None:
    """Only where the two disagree: within the second that a `Date` leaves open, the client's own clock holds."""
    clock, now = Clock(), 1_800_000_000
    with patch("time.time_ns", lambda: now * 10**9 + 500_000_000):
        clock.answered(now * 1_000_000 + 400_000, (now + behind) * 1_000_000)
        assert abs(clock.now() - (now + expected) * 1_000_000 - 500_000) <= 600_000
        assert behind or clock.now() == now * 1_000_000 + 500_000
