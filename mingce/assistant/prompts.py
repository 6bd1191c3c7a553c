"""The ways people ask about PPO, as prompts that a client offers: the seeds' questions with a place for one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mingce.base.errors import SettingError, UnknownNameError
from mingce.base.texts import named, sentence, texts
from mingce.explain import example

LONGEST = 20_000
"""Characters of one argument."""


@dataclass(frozen=True)
class Prompt:
    """A prompt by its name; arguments with a default may be left out, those with None may not."""

    name: str
    arguments: Mapping[str, str | None]

    def title(self, lang: str) -> str:
        return named(texts("assistant", lang)["prompt_titles"])[self.name]

    def meaning(self, argument: str, lang: str) -> str:
        return named(texts("assistant", lang)["prompt_arguments"])[argument]

    def text(self, given: Mapping[str, str], lang: str) -> str:
        """What is said to the model."""
        for name, value in given.items():
            if name not in self.arguments:
                raise UnknownNameError("argument", name, self.arguments)
            if len(value) > LONGEST:
                raise SettingError(
                    sentence("assistant.long_text", lang, name=name, count=f"{len(value):,}", most=f"{LONGEST:,}")
                )
        values = {name: given.get(name) or default for name, default in self.arguments.items()}
        for name, filled in values.items():
            if filled is None:
                raise SettingError(sentence("assistant.no_prompt_argument", lang, prompt=self.name, name=name))
        return texts("assistant", lang)[f"prompts.{self.name}"].format(**values)


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        Prompt("five_quantities", {"prompt": example.PROMPT, "response": "".join(example.TOKENS)}),
        Prompt("walk_token", {"run": None, "step": None, "rollout": "0", "token": "0"}),
        Prompt("judge_understanding", {"text": None}),
        Prompt("audit_dump", {"dump": None}),
        Prompt("save_dialogue", {}),
    )
}


def find_prompt(name: str) -> Prompt:
    """A prompt by its name."""
    if name not in PROMPTS:
        raise UnknownNameError("prompt", name, PROMPTS)
    return PROMPTS[name]
