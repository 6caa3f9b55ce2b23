from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Returned(Generic[T]):
    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def result(self) -> T:
        return self._value


class Failed:
    """The call has raised. Each task gets the same exception with the traceback of the call alone."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        # without the frame that has caught it, and holds this object
        self._traceback = error.__traceback__ and error.__traceback__.tb_next

    def result(self) -> object:
        error = self.error.with_traceback(self._traceback)
        try:
            raise error
        finally:
            # its traceback holds this frame: let go of both, or they wait for the garbage collector
            del error, self


Outcome = Returned[T] | Failed
