"""A training loop of your own: the roles come from a configuration, each line of a step fills columns of the ledger.

    python examples/own_loop.py

Put your own lines between these: another sampler, a filter over rollouts, another advantage. A column is refused if it
does not fit, so a mistake in an index shows where it is made. `mingce columns` says what each column is.
"""

from contextlib import closing

import mingce


def main() -> None:
    config = mingce.read_config(overrides=["steps=4", "prompts_per_step=32", "credit.lam=0.9", "threads=1"])
    with closing(mingce.build_roles(config)) as roles:
        actor, critic, reference, reward = roles.actor, roles.critic, roles.reference, roles.reward
        assert critic is not None  # `estimator=grpo` would have none
        assert reference is not None  # nor would there be a reference without a KL
        for step in range(1, config.steps + 1):
            examples = roles.batch(step, config.prompts_per_step, config.seed)
            ledger = actor.generate(examples, step)  # responses and the log-probs they were drawn with
            asked = [example for example in examples for _ in range(config.samples_per_prompt)]
            ledger.fill(reward.score(ledger, asked, step))  # scores
            ledger.fill(actor.log_probs(ledger))  # old_log_probs, entropy
            ledger.fill(reference.log_probs(ledger))  # ref_log_probs
            ledger.fill(critic.values(ledger))  # values
            mingce.assign_credit(ledger, config, config.kl.reward_coef)  # kl, rewards, advantages, returns …
            critic.update(ledger, step)  # new_values, value_loss
            actor.update(ledger, step)  # new_log_probs, ratio, clipped, policy_loss
            metrics = mingce.compute_metrics(ledger)
            print(f"step {step}  score {metrics['critic/score/mean']:.3f}  clipped {metrics['actor/pg_clipfrac']:.3f}")
    print(ledger)


if __name__ == "__main__":
    main()
