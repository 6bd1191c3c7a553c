"""What an estimator of advantages is, and the table of those there are; `mingce.specs.estimators` defines them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.user_files import names_file
from mingce.columns import ROW_COLUMNS
from mingce.specs.rows import Matrix, Row


class Credit(NamedTuple):
    """What an estimator says of each token; estimators without a critic give advantages alone."""

    advantages: Matrix
    deltas: Matrix | None = None
    returns: Matrix | None = None


class CriticCredit(NamedTuple):
    """What an estimator with a critic says of each token."""

    advantages: Matrix
    deltas: Matrix
    returns: Matrix


Kind = Literal["recursion", "window", "turns", "share", "group", "own"]
"""From the next token's advantage; over the next tokens' TD errors; from the next turn's advantage; a part of the row's
total; against its group; one's own function."""
Twin = Callable[..., CriticCredit | Matrix]
T = TypeVar("T", bound=Twin)


@dataclass(frozen=True)
class Estimator:
    """One way to assign credit.

    `inputs` are the columns it reads, `settings` the settings. `fixed_lambda` is the λ of GAE that it amounts to, where
    that is fixed. `whitens` is what `credit.whiten=auto` does with its advantages. `aggregation` is the loss
    aggregation it is meant for. `numbers` is the formula with {placeholders} for one token's numbers
    (mingce.explain.account).
    """

    name: str
    kind: Kind
    zh: str
    en: str
    formula: str
    numbers: str
    inputs: tuple[str, ...]
    settings: tuple[str, ...] = ()
    fixed_lambda: float | None = None
    whitens: bool = True
    aggregation: str | None = None
    twin: Twin | None = None
    tensor_function: Callable[..., Any] | None = None
    """A person's own function on tensors; None: the one of this name in mingce.algorithms.advantage."""

    @property
    def needs_critic(self) -> bool:
        """Whether it reads values."""
        return "values" in self.inputs

    @property
    def grouped(self) -> bool:
        """Whether it compares the samples of a prompt."""
        return "group" in self.inputs

    @property
    def row_inputs(self) -> tuple[str, ...]:
        """Those inputs that are one number a row."""
        return tuple(name for name in self.inputs if name in ROW_COLUMNS and name != "group")

    def arguments(
        self, columns: Mapping[str, Any], settings: Mapping[str, Any], bootstrap: Any = None
    ) -> dict[str, Any]:
        """The keyword arguments of the function and of `twin`; settings that are None are left to their defaults."""
        chosen_settings = {name: settings[name] for name in self.settings if settings.get(name) is not None}
        after = {"bootstrap": bootstrap} if self.needs_critic else {}
        return {name: columns[name] for name in self.inputs} | chosen_settings | after

    def estimate(self, columns: Mapping[str, Any], settings: Mapping[str, Any], bootstrap: Row | None = None) -> Credit:
        """The credit of rows of plain numbers, by the definition in float64."""
        assert self.twin is not None, self.name
        credit = self.twin(**self.arguments(columns, settings, bootstrap))
        return Credit(*credit) if isinstance(credit, tuple) else Credit(credit)

    @property
    def mixes_tokens(self) -> bool:
        """Whether its λ counts tokens, as that of GAE does."""
        return self.fixed_lambda is None and self.effective_lambda(1.0) is not None

    def effective_lambda(self, lam: float | None) -> float | None:
        """The λ of GAE that it amounts to under this setting; None if it is no GAE."""
        return lam if "lam" in self.settings and self.kind == "recursion" else self.fixed_lambda


TRUNCATIONS = ("zero", "bootstrap", "mask")
"""What follows a response that was cut: nothing, the critic's value, or the row stays out of the losses."""
ESTIMATORS: dict[str, Estimator] = {}
"""By name, in the order they are listed to people."""


def row_inputs() -> tuple[str, ...]:
    """The numbers of a row, besides its columns, that some estimator reads."""
    return tuple(dict.fromkeys(name for spec in ESTIMATORS.values() for name in spec.row_inputs))


def find_estimator(name: str) -> Estimator:
    """The estimator of that name; an unknown name is an error that offers the nearest. No file is executed for it."""
    if name not in ESTIMATORS and names_file(name):
        raise SettingError(
            f"estimator={name} is a file of its own, which is not executed here; it cannot be recomputed."
        )
    if name not in ESTIMATORS:
        raise UnknownNameError("estimator", name, ESTIMATORS)
    return ESTIMATORS[name]


def lambda_of(settings: Mapping[str, Any]) -> float | None:
    """The λ to compute GAE with under these settings: the estimator's own where it fixes one, else `lam`."""
    spec = ESTIMATORS.get(settings.get("estimator") or "")
    return settings.get("lam") if spec is None or spec.fixed_lambda is None else spec.fixed_lambda


def define(**entry: Any) -> Callable[[T], T]:
    """Registers an estimator under its definition's name."""

    def register(twin: T) -> T:
        ESTIMATORS[twin.__name__] = Estimator(name=twin.__name__, twin=twin, **entry)
        return twin

    return register
