"""Estimators and policy losses of the person's own: one decorated function on tensors.

    @mingce.estimator(inputs=("rewards", "response_mask"), settings=("gamma",), formula="A_t = G_t", en="…", zh="…")
    def reward_to_go(rewards, response_mask, gamma): ...

Its name is known in the process that ran it; `estimator=my_file.py:reward_to_go` names it everywhere. A file is run
by `load_own` alone, once the person has agreed to it (mingce.training.trust): looking a name up executes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from mingce.base.errors import ColumnError, MingceError, SettingError, UnknownNameError
from mingce.base.paths import expanded, resolved
from mingce.base.user_files import find_callable, last_line, place, split_file_spec
from mingce.columns import COLUMNS, ROW_COLUMNS
from mingce.specs.estimator import ESTIMATORS, Estimator
from mingce.specs.losses import POLICY_LOSSES, PolicyLoss

F = TypeVar("F", bound=Callable[..., Any])
Spec = TypeVar("Spec", Estimator, PolicyLoss)

_TABLE_ORDER = list(COLUMNS)  # that in which a step fills them
READABLE = tuple(name for name in _TABLE_ORDER[: _TABLE_ORDER.index("advantages")] if name != "deltas")
"""The token columns that are there when advantages are estimated."""
_MARK = "mingce_spec"


def estimator(
    *,
    inputs: Sequence[str],
    settings: Sequence[str] = (),
    formula: str = "A_t",
    en: str = "",
    zh: str = "",
    whitens: bool = True,
    twin: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Makes a function of columns an estimator: it is called with `inputs` and `settings` by name and gives A [B, T].

    `inputs` are columns of the ledger (response_mask among them), `settings` those of `credit.`. One that reads
    `values` has a critic: it gets `bootstrap` [B] too, the value after each row's last token, and may give
    (A, returns); returns are A + V otherwise. What it gives behind the mask does not count. `whitens` is what
    `credit.whiten=auto` does; `twin` is the same function on lists of floats, with which accounts are recomputed.
    """

    def register(function: F) -> F:
        for name in inputs:
            if name not in READABLE and name not in ROW_COLUMNS:
                raise UnknownNameError("input", name, (*READABLE, *ROW_COLUMNS))
        if "response_mask" not in inputs:
            raise SettingError(f"the inputs of {function.__name__} lack response_mask, which says what was chosen.")
        named = [*inputs, *settings, *(["bootstrap"] if "values" in inputs else ())]
        _expect_arguments(function, [], named)
        spec = Estimator(
            name=function.__name__,
            kind="own",
            zh=zh or function.__name__,
            en=en or function.__name__,
            formula=formula,
            numbers="A_{t} = {advantage}",
            inputs=tuple(inputs),
            settings=tuple(settings),
            whitens=whitens,
            twin=twin,
            tensor_function=_as_credit(function),
        )
        return _registered(function, spec, ESTIMATORS)

    return register


def policy_loss(
    *,
    settings: Sequence[str] = (),
    formula: str = "L^π_t",
    en: str = "",
    zh: str = "",
    aggregation: str | None = None,
    twin: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """Makes `f(old_log_prob, log_prob, advantages, response_mask, **settings)` a policy loss: it gives the token losses
    [B, T], which are then averaged by `actor.loss_agg_mode`.

    `settings` are those of `actor.` it reads, `aggregation` is the one it is meant for.
    """

    def register(function: F) -> F:
        _expect_arguments(function, ["old_log_prob", "log_prob", "advantages", "response_mask"], settings)
        spec = PolicyLoss(
            name=function.__name__,
            zh=zh or function.__name__,
            en=en or function.__name__,
            formula=formula,
            numbers="L^π_{t} = {policy_loss}",
            settings=tuple(settings),
            aggregation=aggregation,
            twin=twin,
            tensor_function=_as_terms(function),
        )
        return _registered(function, spec, POLICY_LOSSES)

    return register


def load_own(*, estimator: str = "", loss: str = "") -> None:
    """Executes the files that these names are in, if they are in files, and registers what they name.

    A file that is as it was when this process executed it is not executed again.
    """
    _load("estimator", estimator, ESTIMATORS, Estimator)
    _load("actor.loss", loss, POLICY_LOSSES, PolicyLoss)


def own_file(name: str) -> Path | None:
    """The file that a setting names; None where it is no `file.py:name`."""
    parts = split_file_spec(name)
    return None if parts is None else resolved(expanded(parts[0]))


def _load(setting: str, name: str, table: dict[str, Spec], kind: type[Spec]) -> None:
    file, parts = own_file(name), split_file_spec(name)
    if file is None or parts is None:
        return
    function_name = parts[1]
    if not function_name:
        raise SettingError(f"{setting}={name} names no function; write {name}:name.")
    if not file.is_file():
        raise SettingError(f"{setting}={name}: there is no file {file}; check the path.")
    function = find_callable(file, function_name, SettingError)
    spec = getattr(function, _MARK, None)
    if not isinstance(spec, kind):
        decorator = "@mingce.estimator" if setting == "estimator" else "@mingce.policy_loss"
        raise SettingError(f"{setting}={name}: {function_name} lacks {decorator}(…); write it above its def.")
    table[name] = replace(spec, name=name)


def _registered(function: F, spec: Spec, table: dict[str, Spec]) -> F:
    """Puts it into the table; a built-in one is never replaced, one's own is, as when a cell is run again."""
    if spec.name in table and table[spec.name].tensor_function is None:
        raise SettingError(f"'{spec.name}' is built in; give yours another name.")
    table[spec.name] = spec
    setattr(function, _MARK, spec)
    return function


def _expect_arguments(function: Callable[..., Any], positional: Sequence[str], named: Sequence[str]) -> None:
    try:
        inspect.signature(function).bind(*positional, **dict.fromkeys(named))
    except TypeError as error:
        wanted = f"{function.__name__}({', '.join((*positional, *named))})"
        raise SettingError(
            f"it cannot be called as {wanted} ({error}); change its arguments or what it reads."
        ) from None


# ── on tensors ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _as_credit(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as training calls an estimator: what it gives is checked, and 0 behind the mask."""

    def estimate(**arguments: Any) -> Any:
        import torch

        from mingce.algorithms.advantage import Credit

        with torch.no_grad():
            result = _called(function, **arguments)
        mask, values = arguments["response_mask"], arguments.get("values")
        advantages, returns = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
        advantages = _column(function, advantages, mask)
        if values is None:
            return Credit(advantages)
        return Credit(advantages, _column(function, advantages + values if returns is None else returns, mask))

    return estimate


def _as_terms(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as training calls a policy loss."""

    def terms(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any, **settings: Any) -> Any:
        from mingce.algorithms.losses import Terms, policy_ratio

        losses = _called(function, old_log_prob, log_prob, advantages, response_mask, **settings)
        ratio = policy_ratio(old_log_prob.detach(), log_prob.detach(), response_mask)
        return Terms(_column(function, losses, response_mask), ratio)

    return terms


def _called(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What the function gives; an error of its own is told with its line."""
    try:
        return function(*arguments, **named)
    except MingceError:
        raise
    except Exception as error:
        where = place(error, Path(function.__code__.co_filename))
        raise SettingError(f"{where}: {last_line(error)}; mend {function.__name__}.") from error


def _column(function: Callable[..., Any], values: Any, mask: Any) -> Any:
    from torch import Tensor

    from mingce.algorithms.masking import keep

    if not isinstance(values, Tensor) or values.shape != mask.shape:
        got = f"shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise ColumnError(
            f"{function.__name__} gave {got}; it must give a tensor of shape {list(mask.shape)}, one number a token."
        )
    if not values[mask.bool()].isfinite().all():
        raise ColumnError(f"{function.__name__} gave a number that is not finite for a chosen token; mend it there.")
    return keep(values.float(), mask)
