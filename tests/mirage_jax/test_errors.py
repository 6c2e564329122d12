"""Errors say what they mean and survive a process boundary."""

import pickle

import pytest

from mirage_jax import errors


def test_every_error_is_a_mirage_error():
    kinds = [v for v in vars(errors).values() if isinstance(v, type)]
    raised = [k for k in kinds if not issubclass(k, Warning)]
    assert all(issubclass(k, errors.MirageError) for k in raised)
    assert issubclass(errors.ConfigError, ValueError)
    assert issubclass(errors.UnsupportedError, NotImplementedError)
    assert issubclass(errors.MirageWarning, UserWarning)


def test_a_region_error_names_region_operation_and_reason():
    error = errors.RegionError("region 3 at /scan (f.py:7)", "`dot_general`", "no luck")
    for part in ("region 3 at /scan (f.py:7)", "`dot_general`", "no luck", "strict"):
        assert part in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert (again.where, again.operation) == (error.where, error.operation)
    assert again.reason == "no luck"


@pytest.mark.parametrize("kind", [errors.MissError, errors.DatabaseError])
def test_plain_errors_pickle(kind):
    assert str(pickle.loads(pickle.dumps(kind("why")))) == "why"
