"""transformers and its hub, kept quiet, and their errors turned into one sentence of our own."""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from transformers.utils import logging as transformers_logging

from mingce.base.errors import MingceError, ModelError

_LONGEST_REASON = 300


@contextmanager
def library_errors(failure: str, remedy: str) -> Iterator[None]:
    """No log lines, warnings or bars inside; what goes wrong becomes a ModelError: failure (reason); remedy."""
    log = cast(Any, transformers_logging)
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except MingceError:
        raise
    except Exception as error:  # a stranger's files make these libraries raise anything
        raise ModelError(f"{failure} ({_reason(error)}); {remedy}.") from error
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()


def _reason(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError | EOFError):  # torch's own sentence advises to trust the file
        return "a file of weights holds something else than tensors"
    if "ignore_mismatched_sizes" in str(error):  # which refers to a report that is not shown
        return "its weights have other sizes than its config.json names"
    first, *more = [line.strip() for line in str(error).strip().split("\n")]
    text = f"{first} {more[0]}" if first.endswith(":") and more else first  # the reason stands on the next line
    return text.rstrip(".:")[:_LONGEST_REASON] or type(error).__name__
