"""Blocks that are cancelled by their scope alone, for what was mended for scopes and not for `task.cancel()`."""

from __future__ import annotations

from tenure.testing import Cancellable, cancellable


def by_scope() -> Cancellable:
    """Mark a block as `cancellable()` does, and never let it be cancelled natively."""
    block = cancellable()
    cancel = block.cancel

    def cancel_scope(*, native: bool = False) -> None:  # noqa: ARG001 # the directive is ignored
        cancel()

    block.cancel = cancel_scope
    return block
