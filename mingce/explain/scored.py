"""A prompt and a response of one's own, scored by models and the task as a step of training would.

Models measure; the arithmetic is the float64 twins'. The response is taken as if the policy had said it and then
stopped, so the end token has its account too.
"""

from __future__ import annotations

from collections.abc import Sequence

from mingce.base.errors import SettingError
from mingce.base.texts import sentence
from mingce.base.user_files import names_file
from mingce.config import as_values
from mingce.credit import whitens
from mingce.explain.example import Rollout, completed
from mingce.explain.pair_ledger import measured
from mingce.explain.pair_score import fill_scores
from mingce.ledger import Ledger
from mingce.record import checkpoints
from mingce.record.targets import Step, find_run
from mingce.record.tokens import TokenTexts, tokenizer_file
from mingce.specs import find_estimator
from mingce.specs.settings import AccountSettings, by_dotted_key
from mingce.training.opening import Opened, open_policy
from mingce.training.trust import expect_trust


def scored(
    prompt: str,
    response: str,
    *,
    where: str = "tiny",
    step: Step = None,
    overrides: Sequence[str] = (),
    score: float | None = None,
    lang: str = "zh",
) -> tuple[Rollout, list[str]]:
    """The pair's rollout with every column, and what a reader must know about where its numbers come from.

    `where` is a run (its best checkpoint unless `step` says which) or a model; `score` is used instead of the task's.
    """
    run = find_run(where, step)
    if run is not None and step is None:
        step = checkpoints.best_step(run)
    opened = open_policy(where, step=step, overrides=overrides)
    config, notes = opened.config, [_whose(opened, lang)]
    if names_file(config.estimator):
        raise SettingError(f"{config.estimator} is a file of its own, not executed here; give --estimator gae.")
    if find_estimator(config.estimator).grouped:
        raise SettingError(
            f"{config.estimator} compares the answers to one prompt, and here is one answer only; give --estimator gae."
        )
    if run is not None and score is None:
        expect_trust(run.path, config, overrides, trust=False, command="eval")
    ledger = measured(opened, prompt, response, lang, notes)
    fill_scores(opened, ledger, prompt, score, lang, notes)
    return _rollout(opened, ledger, prompt, response), notes


def _whose(opened: Opened, lang: str) -> str:
    if opened.step is None:
        return sentence("tutor.untrained_actor", lang, where=opened.where)
    start = opened.config.model.path
    return sentence("tutor.trained_actor", lang, where=opened.where, step=opened.step, start=start)


def _rollout(opened: Opened, ledger: Ledger, prompt: str, response: str) -> Rollout:
    config = opened.config
    texts = TokenTexts(tokenizer_file(config.model.path))
    columns = {name: column[0].tolist() for name, column in ledger.columns().items() if name != "token_ids"}
    columns = {name: [int(x) for x in column] if "mask" in name else column for name, column in columns.items()}
    adapted = opened.kl_coef if config.kl.adaptive else None
    settings = AccountSettings.from_config(by_dotted_key(as_values(config)), beta=adapted, whiten=whitens(config))
    return completed(
        Rollout(
            prompt=prompt,
            response=response,
            tokens=texts.tokens(ledger["token_ids"][0].tolist()),
            columns=columns,
            settings=settings,
            uid="pair",
            has_texts=texts.known,
            prompt_tokens=texts.tokens(ledger.row("prompt_ids")[0]),
        )
    )
