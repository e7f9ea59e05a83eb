"""What must be quiet while the process forks: SQLite keeps account of its locks by process.

A child that inherited a connection would take locks for held that are not. So before a fork everybody finishes what is
at hand and closes its connections, which may take as long as a locked file is waited for; both sides then connect anew.
"""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Member(Protocol):
    def hold(self) -> None:
        """Finish the piece of work at hand, close the connection, and wait."""
        ...

    def go_on(self) -> None:
        """The fork is done, and this is the parent."""
        ...

    def begin_anew(self) -> None:
        """The fork is done, and this is the child, where the parent's threads are not."""
        ...


_members: WeakSet[Member] = WeakSet()
_forking = threading.Lock()  # two threads may fork at once
_held: list[Member] = []


def join(member: Member) -> None:
    """Have the member held at each fork, as long as it lives."""
    _members.add(member)


def _before() -> None:
    _forking.acquire()
    _held.extend(_members)
    for member in _held:
        member.hold()


def _after_in_parent() -> None:
    for member in _held:
        member.go_on()
    _held.clear()
    _forking.release()


def _after_in_child() -> None:
    for member in _held:
        member.begin_anew()
    _held.clear()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
