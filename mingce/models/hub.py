"""Models by name from the Hugging Face hub, or from what was downloaded before."""

from __future__ import annotations

import re
from pathlib import Path

import huggingface_hub
from huggingface_hub import constants
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError

from mingce.base.errors import ModelError

_WANTED = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken"]
_REPOSITORY = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
_PATIENCE = 5.0
"""Seconds to wait for the hub to answer at all; its own retries take half a minute for every file."""


def download(name: str) -> Path:
    """The directory of a hub model on this machine, fetched if it is not there yet or has changed."""
    if not _REPOSITORY.fullmatch(name):
        raise ModelError(f"the model directory {name} does not exist; check the path.")
    reachable = _reachable()
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_WANTED, local_files_only=not reachable))
    except GatedRepoError:
        raise ModelError(f"the model {name} needs permission; ask for it on the hub and log in there.") from None
    except RepositoryNotFoundError:
        raise ModelError(f"there is no directory {name} and no such model on the hub; check the name.") from None
    except (LocalEntryNotFoundError, OSError) as error:
        if reachable:
            raise ModelError(f"the model {name} could not be fetched from the hub ({error}); try again.") from error
        raise ModelError(
            f"there is no directory {name}, and the hub ({constants.ENDPOINT}) cannot be reached to look for a "
            "model of that name; check the path, or fetch the model elsewhere and give its directory."
        ) from None


def _reachable() -> bool:
    if constants.HF_HUB_OFFLINE:
        return False
    try:
        huggingface_hub.get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
    except Exception:  # whatever the network or its client library raises: there is no hub
        return False
    return True
