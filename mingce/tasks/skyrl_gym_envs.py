"""Environments of skyrl-gym by name, with the rows of data files: `skyrl_gym:gsm8k_multi_turn data.train=[rows.jsonl]`.

Rows are SkyRL's (`prompt`, `reward_spec`, …) or any that `data_columns` reads: the environment is made with all that a
row has, and with its ground truth as `reward_spec` and `reward_model` where it has none. `data.options` are the
environment's own configuration. Each turn is paid what the environment says; a last turn paid 1 or more is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mingce.base.errors import DataError, UnknownNameError
from mingce.tasks.base import Example, NoAnswer, Prompt, Task
from mingce.tasks.environment import Action, Environment, Observation, PaidByTurns

FULL_MARKS = 1 - 1e-9
GOLD_FORMS = ("#### {}", "<answer>{}</answer>", "Answer: {}", "\\boxed{{{}}}", "{}")


class SkyRLGym(PaidByTurns):
    """The examples of a task in an environment of skyrl-gym."""

    def __init__(self, name: str, data: Task, options: Mapping[str, Any] | None = None) -> None:
        self.kind, self.name, self.data, self.options = name, f"skyrl_gym:{name}", data, dict(options or {})
        self.library = _library(self.name)
        known = self.library.envs.registration.registry
        if name not in known:
            raise UnknownNameError("skyrl-gym environment", name, known)

    def make(self, example: Example) -> Any:
        """The environment of an example, with the arguments that SkyRL gives it."""
        from omegaconf import OmegaConf

        info = example.extra_info
        truth = self.truth(example)
        extras = {"reward_spec": truth, "reward_model": truth, "data_source": example.data_source, "extra_info": info}
        extras |= {name: value for name, value in info.items() if value is not None}
        return self.library.make(self.kind, env_config=OmegaConf.create(self.options), extras=extras)

    @staticmethod
    def truth(example: Example) -> Any:
        """What holds the ground truth, under whichever name the row has it: environments ask for either."""
        info = example.extra_info
        return info.get("reward_spec") or info.get("reward_model") or {"ground_truth": example.ground_truth}

    def environment(self) -> Environment:
        return SkyRLEnvironment(self)

    def train_examples(self) -> Sequence[Example]:
        return self.data.train_examples()

    def held_out_examples(self) -> Sequence[Example]:
        return self.data.held_out_examples()

    def gold(self, example: Example) -> str:
        """The ground truth in the first form that the environment pays in full at once."""
        for form in GOLD_FORMS:
            text = form.format(self.truth(example).get("ground_truth"))
            environment = SkyRLEnvironment(self)
            environment.reset(example, 0)
            if environment.step(Action(text)).right:
                return text
        raise NoAnswer(f"{self.name} pays in full for no form of the ground truth, so no right answer is known.")


class SkyRLEnvironment:
    """One conversation."""

    def __init__(self, task: SkyRLGym):
        self.task = task

    def reset(self, example: Example, seed: int) -> Prompt:
        self.example, self.chat = example, not isinstance(example.prompt, str)
        self.inner = self.task.make(example)
        first = example.prompt if self.chat else [{"role": "user", "content": example.prompt}]
        messages, _ = self.inner.init([dict(message) for message in first])  # type: ignore[arg-type]
        return [dict(message) for message in messages] if self.chat else f"{messages[-1]['content']}"

    def step(self, action: Action) -> Observation:
        said = self.inner.step(action.text)
        reward, done = float(said["reward"]), bool(said["done"])
        if done:
            self.inner.close()
            return Observation(reward=reward, done=True, right=reward >= FULL_MARKS)
        told = [dict(message) for message in said["observations"]]
        content = told if self.chat else "".join(f"\n{message['content']}\n" for message in told)
        return Observation(content, reward=reward)

    def gold(self) -> str:
        return self.task.gold(self.example)


def _library(name: str) -> Any:
    try:
        import skyrl_gym
    except ImportError as error:
        raise DataError(
            f"{name} needs skyrl-gym ({error}); install it with pip install 'mingce[skyrl-gym]'."
        ) from error
    return skyrl_gym
