"""What a crash or a full disk costs on a PostgreSQL server with these settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentstore.backend import Finding

SETTINGS = """
SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')
UNION ALL SELECT 'recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END
"""


def findings(settings: Mapping[str, str]) -> Iterator[Finding]:
    """What the rows of `SETTINGS`, by name, mean for conversations."""
    if settings["recovery"] == "on":
        yield Finding("error", "This server is a replica: it refuses every write. Name the primary in the URL.")
    damaging = [name for name in ("fsync", "full_page_writes") if settings[name] == "off"]
    for name in damaging:
        yield Finding("warning", f"{name} is off: a power cut can damage the whole database beyond repair. Turn it on.")
    if settings["synchronous_commit"] == "off":
        yield Finding(
            "warning",
            "synchronous_commit is off: a crash of the server loses the turns of about the last second, although they"
            " were acknowledged. Turn it on for the role that agentstore uses.",
        )
    elif not damaging:
        yield Finding("ok", "An acknowledged turn is on the server's disk: a crash or a power cut loses none.")
    yield Finding("ok", "When the disk is full, writes fail with an error and nothing is half-written.")
