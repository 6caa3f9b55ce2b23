"""Leaves methods that only other rooms call out of the API reference."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import griffe

_INTERNAL = runpy.run_path(str(Path(__file__).parents[2] / "tests" / "internal.py"))


class Inner(griffe.Extension):
    """Removes from each class what `tests/internal.py` calls internal, when the package has been read."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Remove the internal methods of a class."""
        if not cls.path.startswith("tenure."):
            return
        named = _INTERNAL["INNER"].get(cls.name, ())
        for name, member in list(cls.members.items()):
            text = member.docstring.value if not member.is_alias and member.docstring else ""
            if name in named or _INTERNAL["FOR_ONE_CALLER"].search(text):
                cls.del_member(name)
