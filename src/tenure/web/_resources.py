"""The resources of a pool for the page, and who has them. Their metadata may be secret, and is left out."""

from __future__ import annotations

from typing import Any

import tenure.engine as e
from tenure.store import StoreHandle

_SHOWN = ("resource", "state", "process", "preference", "token", "rest", "slots", "claimed")


async def resources(store: StoreHandle, pool: str, after: str, *, reasons: bool) -> dict[str, Any] | None:
    """A page of the resources of a pool, with the `reasons` of retired ones or without; None if there is no such pool.

    Raises `EngineError`.
    """
    page = await store.call(e.Scan(e.RESOURCES, store.key("pool", pool), after))
    assert isinstance(page, e.ResourcePage)
    if not (page.rows or page.waiting or page.next or after):
        return None
    shown = (*_SHOWN, "reason") if reasons else _SHOWN
    rows = [{field: getattr(resource, field) for field in shown} for resource in page.rows]
    return {"pool": pool, "waiting": page.waiting, "resources": rows, "next": page.next}
