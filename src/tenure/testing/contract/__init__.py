"""The engine contract as tests: classes for pytest that any engine's author can run."""

import pkgutil

import pytest

# Before they are imported: so that a failed assertion shows its values.
pytest.register_assert_rewrite(*(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")))

from ._batches import BatchContract  # noqa: E402
from ._changes import ChangeContract  # noqa: E402
from ._claims import ClaimContract  # noqa: E402
from ._counters import CounterContract  # noqa: E402
from ._deadlines import DeadlineContract, FamilyDeadlineContract  # noqa: E402
from ._durations import DurationContract  # noqa: E402
from ._families import FamilyContract  # noqa: E402
from ._forgetting import ForgettingContract  # noqa: E402
from ._groups import GroupContract  # noqa: E402
from ._hints import HintContract  # noqa: E402
from ._holds import HoldContract  # noqa: E402
from ._keys import KeyContract  # noqa: E402
from ._odd_arguments import OddArgumentContract  # noqa: E402
from ._paces import PaceContract  # noqa: E402
from ._resending import ResendingContract  # noqa: E402
from ._sessions import SessionContract  # noqa: E402
from ._survey import SurveyContract  # noqa: E402
from ._tasks import TaskContract  # noqa: E402
from ._walk import WalkContract  # noqa: E402

__all__ = ("EngineContract",)


class EngineContract(
    WalkContract,
    SessionContract,
    HoldContract,
    ClaimContract,
    TaskContract,
    ChangeContract,
    DeadlineContract,
    FamilyDeadlineContract,
    GroupContract,
    PaceContract,
    FamilyContract,
    KeyContract,
    CounterContract,
    HintContract,
    BatchContract,
    ResendingContract,
    SurveyContract,
    ForgettingContract,
    DurationContract,
    OddArgumentContract,
):
    """The contract's demands on an engine, as tests for pytest.

    A subclass named `Test...` defines a fixture `engine`, and `advance` if its time can be set: see the guide "Write an
    engine". The tests are async and run by anyio's plugin, on the loops that the `anyio_backend` fixture names.

    Thread safety: none needed; pytest makes one for each test.
    """
