"""What an exception says of a call: a failure, a success, or nothing."""

import asyncio

import pytest
import trio

from tenure.local._breaker_outcome import Outcomes


def group(*errors):
    return BaseExceptionGroup("several", errors)


@pytest.mark.parametrize(
    ("record", "ignore", "error", "failed"),
    [
        (Exception, (), ValueError(), True),
        (OSError, (), ConnectionError(), True),
        (OSError, (), ValueError(), False),
        (Exception, ValueError, ValueError(), None),
        ((OSError, KeyError), (ConnectionError,), KeyError(), True),
        ((OSError, KeyError), (ConnectionError,), ConnectionError(), None),
        (lambda error: "5" in str(error), (), OSError(503), True),
        (lambda error: "5" in str(error), (), OSError(404), False),
        (Exception, lambda error: "4" in str(error), OSError(404), None),
        (Exception, (), asyncio.CancelledError(), None),
        (BaseException, (), trio.Cancelled._create(source="unknown"), None),
        (BaseException, (), KeyboardInterrupt(), None),
        (BaseException, (), GeneratorExit(), None),
    ],
)
def test_an_exception_is_a_failure_a_success_or_nothing(record, ignore, error, failed):
    assert Outcomes(record, ignore).failed(error) is failed


@pytest.mark.parametrize(
    ("errors", "failed"),
    [
        ([KeyError()], False),
        ([OSError()], True),
        ([KeyError(), ValueError(), OSError()], True),
        ([KeyError(), ValueError()], None),
        ([KeyError(), asyncio.CancelledError()], None),
        ([OSError(), asyncio.CancelledError()], True),
        ([KeyError(), group(ValueError(), group(OSError()))], True),
        ([group(KeyError())], False),
    ],
)
def test_a_group_is_as_bad_as_the_worst_in_it(errors, failed):
    assert Outcomes(record=OSError, ignore=ValueError).failed(group(*errors)) is failed


@pytest.mark.parametrize("matcher", [None, "OSError", int, (OSError, 3), [OSError], OSError()])
@pytest.mark.parametrize("name", ["record", "ignore"])
def test_what_is_no_matcher_is_refused_by_name(name, matcher):
    with pytest.raises(TypeError, match=f"^{name} must be"):
        Outcomes(**{"record": Exception, "ignore": (), name: matcher})
