"""What a benchmark finds: measured lines, the goals they are held to, and both as plain text."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Goal:
    """A promised bound on a figure: at most `bound`, or at least it."""

    what: str
    figure: float
    bound: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.figure >= self.bound if self.at_least else self.figure <= self.bound

    def __str__(self) -> str:
        bound = f"at {'least' if self.at_least else 'most'} {self.bound:g}"
        return f"  = {self.what:<48}{self.figure:>10.2f}   {bound:<14}{'ok' if self.met else 'MISSED'}"


@dataclass
class Report:
    """One table."""

    title: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)

    def __str__(self) -> str:
        measured = [f"    {what:<48}{value:>16}" for what, value in self.lines]
        return "\n".join([self.title, *measured, *map(str, self.goals)])


def milliseconds(seconds: float) -> str:
    """A time as text, in ms."""
    return f"{seconds * 1000:.3f} ms"
