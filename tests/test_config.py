"""Settings: defaults, recipes, overrides, and what a wrong one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mingce.base.errors import MingceError
from mingce.base.lang import LANGS
from mingce.base.texts import named, texts
from mingce.config import Config, as_values, config_of, describe, read_config, settings

RECIPES = Path(__file__).parent.parent / "recipes"


def test_recipe_and_overrides_lie_over_the_defaults(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("steps: 5\ncritic: {lr: 0.1}\n", encoding="utf-8")
    config = read_config(recipe, ["steps=7", "actor.dual_clip=null", "sampling.stop=[。]", "lam=0.5"])
    assert (config.steps, config.critic.lr, config.actor.dual_clip, config.sampling.stop) == (7, 0.1, None, ["。"])
    assert config.credit.lam == 0.5
    assert config.actor.lr == Config().actor.lr


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_recipes_are_valid(recipe: Path) -> None:
    read_config(recipe)


def test_every_setting_is_documented_in_both_languages() -> None:
    keys = [key for key, _, _ in settings()]
    for lang in LANGS:
        assert list(named(texts("settings", lang)["settings"])) == keys
        assert all(describe(key, lang) for key in keys)


def test_stored_values_give_the_same_configuration() -> None:
    config = read_config(None, ["estimator=grpo", "data.options={min: 3}", "reward.time_limit=2"])
    assert config_of(as_values(config)) == config


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["lamda=0.9"], "unknown setting 'lamda'; did you mean 'lam'?"),
        (["critic.lrr=1"], "unknown setting 'critic.lrr'; did you mean 'critic.lr'?"),
        (["lr=1"], "'lr' may mean actor.lr or critic.lr"),
        (["steps"], "'steps' is not a setting; write key=value"),
        (["steps=many"], "steps"),
        (["credit.lam=1.5"], "credit.lam must lie between 0 and 1, but is 1.5"),
        (["estimator=gea"], "unknown estimator 'gea'; did you mean 'gae'?"),
        (["estimator=grpo", "samples_per_prompt=1"], "set samples_per_prompt to 2 or more"),
        (["estimator=grpo", "truncation=bootstrap"], "needs a critic"),
        (["prompts_per_step=0"], "prompts_per_step must be at least 1, but is 0"),
        (["kl.loss_coef=1", "kl.loss_estimator=k1"], "does not depend on the reference"),
        (["temperature=0"], "sampling.temperature must be above 0"),
        (["lang=fr"], "unknown data.lang 'fr'"),
    ],
)
def test_a_wrong_setting_is_one_sentence(overrides: list[str], says: str) -> None:
    with pytest.raises(MingceError) as caught:
        read_config(None, overrides)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_recipe_is_one_sentence(tmp_path: Path) -> None:
    for content, says in (
        ("steps: [", "not valid YAML"),
        ("- 1", "must be a mapping"),
        ("step: 3", "did you mean 'steps'"),
    ):
        recipe = tmp_path / "bad.yaml"
        recipe.write_text(content, encoding="utf-8")
        with pytest.raises(MingceError, match=says):
            read_config(recipe)
    with pytest.raises(MingceError, match="cannot be read"):
        read_config(tmp_path / "none.yaml")
