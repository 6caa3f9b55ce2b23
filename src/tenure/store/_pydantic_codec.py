from __future__ import annotations

from typing import Any, Generic, overload

from tenure.lazy import extra

from ._codec import T


class PydanticCodec(Generic[T]):
    """JSON of one type, validated on its way in and out: a model, a dataclass, `list[int]`, a union.

    Fields are written by their aliases. Raises pydantic's errors for a type of which it cannot make a `TypeAdapter`,
    and `ModuleNotFoundError` if the extra `pydantic` is not installed.

    Thread safety: any.
    """

    @overload
    def __init__(self, type: type[T]) -> None: ...
    @overload
    def __init__(self, type: Any) -> None: ...
    def __init__(self, type: Any) -> None:  # noqa: A002
        self._type = type
        self._adapter = extra("pydantic", "pydantic").TypeAdapter(type)

    def __repr__(self) -> str:
        return f"PydanticCodec({self._type!r})"

    def encode(self, value: T, /) -> bytes:
        """Return the bytes of a value; raises `ValueError` for a value of another type."""
        data: bytes = self._adapter.dump_json(value, by_alias=True, round_trip=True, warnings="error")
        self.decode(data)  # an assignment to a model is not validated
        return data

    def decode(self, data: bytes, /) -> T:
        """Return the value; raises `ValueError` for bytes of something else."""
        return self._adapter.validate_json(data)
