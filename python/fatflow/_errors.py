"""What goes wrong, as exceptions with the text and the place of the command's complaint."""

from __future__ import annotations

from typing import Optional


class Error(Exception):
    """Why there is no answer. `str(error)` is what the command prints."""

    exit_code: int = 1
    """The exit code that the command would have ended with."""

    def __init__(
        self,
        text: str,
        message: Optional[str] = None,
        place: Optional[str] = None,
        help: Optional[str] = None,
        others: Optional[list[tuple[str, Optional[str], Optional[str]]]] = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        """All that the command prints: every problem, with the lines it stands on."""
        self.message = message if message is not None else text
        """What is wrong, in one sentence."""
        self.place = place
        """Where: `FILE:LINE:COLUMN`, `transfers[ROW]` or a key; `None` where it stands nowhere."""
        self.help = help
        """What would be right, if there is something to say."""
        self.others = [type(self)(m, m, p, h) for m, p, h in others or []]
        """What else is wrong with the input."""

    def __reduce__(self) -> tuple[object, ...]:
        others = [(other.message, other.place, other.help) for other in self.others]
        return type(self), (self.text, self.message, self.place, self.help, others)


class RunFailed(Error):
    """The input is fine, but the run failed or was refused (exit code 1)."""

    exit_code = 1


class WrongUsage(Error, ValueError):
    """What was asked for does not exist (exit code 2)."""

    exit_code = 2


class InvalidInput(Error, ValueError):
    """A scenario, a file or a table is not valid (exit code 3)."""

    exit_code = 3


class ScenarioWarning(UserWarning):
    """Something in a scenario that works but is unwise."""


class UnusedInput(UserWarning):
    """Something that was written and that this run does not obey, with the reason."""


_BY_EXIT_CODE = {kind.exit_code: kind for kind in (RunFailed, WrongUsage, InvalidInput)}


def of_failure(
    exit_code: int,
    text: str,
    message: str,
    place: Optional[str],
    help: Optional[str],
    others: list[tuple[str, Optional[str], Optional[str]]],
) -> Error:
    """The exception for a failure of the native half, which calls this."""
    return _BY_EXIT_CODE.get(exit_code, Error)(text, message, place, help, others)
