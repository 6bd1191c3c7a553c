"""transformers and its hub, kept quiet, and their errors turned into one sentence of our own."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import jinja2
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from mingce.errors import ModelError

_ERRORS = (
    OSError,
    ValueError,
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    SafetensorError,
    jinja2.TemplateError,
)


@contextmanager
def guarded(failure: str, remedy: str) -> Iterator[None]:
    """No log lines, warnings or bars inside; what goes wrong becomes a ModelError: failure (reason); remedy."""
    log = cast(Any, transformers_logging)
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except _ERRORS as error:
        reason = str(error).strip().split("\n")[0].rstrip(".:") or type(error).__name__
        raise ModelError(f"{failure} ({reason}); {remedy}.") from error
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
