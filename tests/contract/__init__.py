"""The engine contract as tests: classes for pytest that any engine's author can run."""

import pkgutil

import pytest

# Before they are imported: so that a failed assertion shows its values.
pytest.register_assert_rewrite(*(module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")))

from ._barriers import BarrierContract  # noqa: E402
from ._batches import BatchContract  # noqa: E402
from ._changes import ChangeContract  # noqa: E402
from ._claims import ClaimContract  # noqa: E402
from ._configured import configured, moving, set_groups  # noqa: E402
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
from ._releases import ReleaseContract  # noqa: E402
from ._resending import ResendingContract  # noqa: E402
from ._rests import RestContract  # noqa: E402
from ._sessions import SessionContract  # noqa: E402
from ._set_back import SetBackContract  # noqa: E402
from ._settings import SettingsContract  # noqa: E402
from ._survey import SurveyContract  # noqa: E402
from ._tasks import TaskContract  # noqa: E402
from ._walk import WalkContract  # noqa: E402

__all__ = (
    "ContractInSetTime",
    "EngineContract",
    "RestContract",
    "SetBackContract",
    "Time",
    "configured",
    "moving",
    "set_groups",
)


class EngineContract(
    WalkContract,
    SessionContract,
    HoldContract,
    BarrierContract,
    ClaimContract,
    TaskContract,
    ChangeContract,
    DeadlineContract,
    FamilyDeadlineContract,
    GroupContract,
    SettingsContract,
    PaceContract,
    FamilyContract,
    ReleaseContract,
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


class Time:
    """An engine's clock, set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    async def advance(self, seconds):
        self.now += seconds


class ContractInSetTime(EngineContract):
    """The demands on an engine that takes the clock `time` as an argument."""

    @pytest.fixture
    def time(self):
        return Time()

    @pytest.fixture
    def advance(self, time):
        return time.advance
