"""The one exception of this package."""

from __future__ import annotations

from typing import Any, Optional, Tuple

SHOWN_CHARACTERS_MAX = 200


class HomingError(Exception):
    """A call could not be done.

    status   what the router answered (404, 409, ...); 0: no answer, or the call was not sent
    name     stable, for programs: that of the router's answer, such as ``model_not_found`` or
             ``duplicate_request``, or one of this package (docs/python.md lists them): ``bad_option``,
             ``closed``, ``unreachable``, ``timeout``, ``bad_answer``, ``generate_failed``, ``no_token_ids``,
             ``dump_too_large``; of publishers and workers ``packages_missing``, ``listen_failed``, of
             publishers ``bad_block``, ``block_size``, ``bad_event_id``
    message  for people: what could not be done, why, and what would be right
    param    the member of the request that the router refuses; None: it names none
    """

    def __init__(self, status: int, name: str, message: str, param: Optional[str] = None) -> None:
        super().__init__(message)
        self.status = status
        self.name = name
        self.message = message
        self.param = param

    def __repr__(self) -> str:
        return f"HomingError(status={self.status}, name={self.name!r}, message={self.message!r})"

    def __reduce__(self) -> Tuple[Any, ...]:
        return HomingError, (self.status, self.name, self.message, self.param)


def refused(name: str, message: str) -> HomingError:
    """An error that the router did not answer."""
    return HomingError(0, name, message)


def bad_option(act: str, option: str, why: str) -> HomingError:
    """`option` as the program writes it; `why` says what would be right."""
    return refused("bad_option", f"cannot {act}: {shown(option)}: {why}")


def shown(text: object) -> str:
    """A value of a caller as one short line."""
    line = " ".join(str(text).split())
    return line if len(line) <= SHOWN_CHARACTERS_MAX else f"{line[:SHOWN_CHARACTERS_MAX]}..."
