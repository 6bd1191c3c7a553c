"""An estimator and a policy loss of one's own, from a file: trained with, resumed, trusted, read by every command."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, expect
from rich.console import Console
from test_train import SMALL, trained
from test_view_page import browser  # noqa: F401  # a fixture

import mingce
from mingce.algorithms.own import load_own
from mingce.audit.audit import audit
from mingce.base.errors import MingceError, RunError, SettingError
from mingce.config import read_config
from mingce.engine.local import build_roles
from mingce.explain.scored import scored
from mingce.importers.opening import open_dump
from mingce.plan.job import read_job
from mingce.record.checkpoints import load
from mingce.record.run import Run
from mingce.specs import ESTIMATORS, POLICY_LOSSES, find_estimator, find_policy_loss
from mingce.training import start

OWN = '''
import torch
from pathlib import Path
import mingce

Path(__file__).with_name("executed").touch()

@mingce.estimator(inputs=("rewards", "values", "response_mask"), settings=("gamma", "lam"),
                  formula="A_t = δ_t + γλ·A_{t+1}", en="GAE, written out", zh="自己写的 GAE")
def written_out(rewards, values, response_mask, gamma, lam, bootstrap):
    advantages = torch.full_like(rewards, float("nan"))  # what stands behind the mask does not count
    ahead, later = bootstrap, torch.zeros(len(rewards))
    for t in reversed(range(rewards.shape[1])):
        chosen = response_mask[:, t]
        advantage = rewards[:, t] + gamma * ahead - values[:, t] + gamma * lam * later
        advantages[chosen, t] = advantage[chosen]
        ahead, later = torch.where(chosen, values[:, t], ahead), torch.where(chosen, advantage, later)
    return advantages

@mingce.estimator(inputs=("rewards", "response_mask", "group"))
def odd(rewards, response_mask, group):
    """Nothing that the audit knows."""
    return rewards.sum(1, keepdim=True) * torch.arange(rewards.shape[1]) + len(set(group))

@mingce.policy_loss(settings=("clip_low", "clip_high"))
def clipped(old_log_prob, log_prob, advantages, response_mask, clip_low, clip_high):
    ratio = (log_prob - old_log_prob).exp()
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)

def plain(rewards, response_mask):
    return rewards

@mingce.estimator(inputs=("rewards", "response_mask"))
def short(rewards, response_mask):
    return rewards.sum(1)

@mingce.estimator(inputs=("rewards", "response_mask"))
def endless(rewards, response_mask):
    return rewards / 0

@mingce.estimator(inputs=("rewards", "response_mask"))
def fails(rewards, response_mask):
    return rewards / [1]

@mingce.estimator(inputs=("rewards", "response_mask"), settings=("gama",))
def misspelt(rewards, response_mask, gama):
    return rewards
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(file: Path) -> Path:
    """Two steps with an estimator and a loss that no other code knows, every ledger audited as it is made."""
    words = [f"estimator={file}:odd", f"actor.loss={file}:clipped", "audit.every=1", "keep.checkpoint_every=1"]
    return trained(file.parent, *SMALL, *words, name="odd").path


def quiet() -> Console:
    return Console(file=io.StringIO())


def mingce_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mingce.cli", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "MINGCE_LANG": "en"},
    )


def weights(run: Run, step: int) -> dict[str, Any]:
    found = load(run, step).tensors
    return {f"{role}.{name}": tensor for role in found for name, tensor in found[role].items()}


def test_gae_and_ppo_written_by_oneself_give_the_same_run(file: Path, tmp_path: Path) -> None:
    own = trained(tmp_path, *SMALL, f"estimator={file}:written_out", f"actor.loss={file}:clipped", name="own")
    built_in = trained(tmp_path, *SMALL, "actor.dual_clip=null", name="built_in")
    for step in (1, 2):
        ours, theirs = own.ledger.read(step), built_in.ledger.read(step)
        for name in ("token_ids", "deltas", "advantages", "returns", "whitened_advantages", "ratio", "policy_loss"):
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-4, atol=1e-5, msg=name)


def test_a_resumed_run_is_the_same_to_the_bit(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    with Run.open(tmp_path / "run") as copy:
        copy.rewind(1)
    start.resume(quiet(), tmp_path / "run")
    ours, theirs = (weights(Run.open(path, readonly=True), 2) for path in (tmp_path / "run", run))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_changed_code_is_another_run(run: Path, file: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "own.py").write_text(OWN + "# changed\n", encoding="utf-8")
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace(str(file), str(tmp_path / "own.py")))
    with pytest.raises(RunError, match="estimator, loss: "):
        start.resume(quiet(), tmp_path / "run", ["steps=3"], trust=True)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")  # elsewhere, but the same
    start.resume(quiet(), tmp_path / "run", ["steps=3"], trust=True)


def test_a_stranger_s_code_is_executed_by_training_alone_and_only_once_trusted(
    run: Path, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stranger = tmp_path / "stranger"
    shutil.copytree(run, stranger)
    (stranger / "own.py").write_text(OWN, encoding="utf-8")
    config = stranger / "config.yaml"
    config.write_text(config.read_text().replace(str(file), str(stranger / "own.py")))
    refused = mingce_command("resume", stranger, "steps=3")
    assert refused.returncode == 2
    assert f"estimator = {stranger / 'own.py'} (sha256" in refused.stderr
    assert "--trust" in refused.stderr
    reading = {
        ("audit", stranger): "odd is a user-defined estimator and is not run here",
        ("view", stranger, "--export", tmp_path / "page.html"): "page.html",
        ("explain", stranger, "--step", "2"): "is your own code, which is not run here",
        ("eval", stranger, "--examples", "1", "--samples", "1"): "greedy",
        ("export", stranger, "--out", tmp_path / "model"): "",
    }
    for words, said in reading.items():
        done = mingce_command(*words)
        assert done.returncode == 0, done.stderr
        assert said in " ".join(done.stdout.split()), done.stdout
    changed = mingce_command("explain", stranger, "--step", "2", "--lam", "0.5")
    assert changed.returncode == 2
    assert "not executed here; choose gae" in changed.stderr
    assert not (stranger / "executed").exists()
    assert mingce_command("resume", stranger, "steps=3", "--trust").returncode == 0
    assert (stranger / "executed").exists()


def test_a_pair_is_explained_without_the_loss_that_only_its_file_knows(file: Path, tmp_path: Path) -> None:
    run = trained(tmp_path, *SMALL, "steps=1", f"actor.loss={file}:clipped").path
    columns = scored("请问17+25=42？", "是的，等于42！", where=str(run))[0].columns
    assert "advantages" in columns
    assert "policy_loss" not in columns


def test_no_advantage_of_one_s_own_is_a_bug(run: Path) -> None:
    report = audit(open_dump(run / "ledger" / "step-000002.parquet")[0])
    assert not report.of("bug")
    assert all(not line["audit/bugs"] for line in Run.open(run, readonly=True).metrics() if "audit/bugs" in line)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["estimator={nowhere}:odd"], "there is no file"),
        (["estimator={file}"], r"names no function; write .*own\.py:name"),
        (["estimator={file}:written_ot"], "did you mean '.*own.py:written_out'"),
        (["estimator={file}:plain"], r"plain lacks @mingce\.estimator"),
        (["estimator={file}:clipped"], r"clipped lacks @mingce\.estimator"),
        (["actor.loss={file}:odd"], r"odd lacks @mingce\.policy_loss"),
        (["estimator={file}:odd", "samples_per_prompt=1"], "compares the samples of a prompt"),
        (["estimator={file}:misspelt"], r"credit\.gama'; did you mean 'credit\.gamma'"),
        (["estimator={file}:short"], r"short gave shape \[16\]; it must give a tensor of shape \[16, "),
        (["estimator={file}:endless"], "endless gave a number that is not finite for a chosen token; mend it there"),
        (["estimator={file}:fails"], r"own\.py, line \d+: TypeError: .*; mend fails"),
        (["estimator=gea"], "did you mean 'gae'"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], said: str, file: Path, tmp_path: Path) -> None:
    given = [word.format(file=file, nowhere=file.with_name("nowhere.py")) for word in words]
    with pytest.raises(MingceError, match=said) as error:
        trained(tmp_path, *SMALL, *given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (("rewards", "respons_mask"), "unknown input 'respons_mask'; did you mean 'response_mask'"),
        (("rewards", "advantages", "response_mask"), "unknown input 'advantages'"),
        (("rewards",), "lack response_mask"),
        (("rewards", "values", "response_mask"), "cannot be called as .*values, response_mask, bootstrap"),
    ],
)
def test_inputs_are_checked_where_they_are_declared(inputs: tuple[str, ...], said: str) -> None:
    with pytest.raises(MingceError, match=said):

        @mingce.estimator(inputs=inputs)
        def mine(rewards: Any, response_mask: Any) -> Any:
            return rewards


def test_a_built_in_name_is_not_taken() -> None:
    with pytest.raises(SettingError, match="'gae' is built in"):

        @mingce.estimator(inputs=("rewards", "response_mask"))
        def gae(rewards: Any, response_mask: Any) -> Any:
            return rewards

    with pytest.raises(SettingError, match="'ppo' is built in"):

        @mingce.policy_loss()
        def ppo(old_log_prob: Any, log_prob: Any, advantages: Any, response_mask: Any) -> Any:
            return advantages


def test_looking_a_name_up_executes_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    name = f"{tmp_path / 'own.py'}:odd"
    for find in (find_estimator, find_policy_loss):
        with pytest.raises(SettingError, match="not executed here"):
            find(name)
    read_config(None, [f"estimator={name}", f"actor.loss={tmp_path / 'own.py'}:clipped"])
    assert read_job(None, [f"estimator={name}"]) is not None
    assert not (tmp_path / "executed").exists()
    load_own(estimator=name)
    assert (tmp_path / "executed").exists()
    assert find_estimator(name).grouped
    assert find_estimator(name).name == name


def times(factor: int) -> str:
    """A file with an estimator and a loss that multiply by one digit, so that every version has the same size."""
    return f"""
import mingce

@mingce.estimator(inputs=("rewards", "response_mask"))
def scaled(rewards, response_mask):
    return {factor} * rewards

@mingce.policy_loss()
def scaled_loss(old_log_prob, log_prob, advantages, response_mask):
    return {factor} * advantages
"""


def factors(name: str) -> tuple[float, float]:
    """By what the estimator and the loss of this file multiply once it is loaded."""
    load_own(estimator=f"{name}:scaled", loss=f"{name}:scaled_loss")
    one, mask = torch.ones(1, 1), torch.ones(1, 1, dtype=torch.bool)
    estimate, terms = ESTIMATORS[f"{name}:scaled"].tensor_function, POLICY_LOSSES[f"{name}:scaled_loss"].tensor_function
    assert estimate is not None
    assert terms is not None
    return estimate(rewards=one, response_mask=mask).advantages.item(), terms(one, one, one, mask).terms.item()


def test_an_edited_file_is_executed_again(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    for factor in (2, 3, 2):
        file.write_text(times(factor), encoding="utf-8")
        os.utime(file, (1_000_000_000, 1_000_000_000))  # the time of a file proves nothing
        assert factors(str(file)) == (factor, factor)


def test_an_unchanged_file_is_executed_once(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text(times(2) + "open(__file__ + '.runs', 'a').write('x')\n", encoding="utf-8")
    for _ in range(2):
        assert factors(str(file)) == (2, 2)
    assert Path(f"{file}.runs").read_text() == "x"


def test_the_same_relative_name_elsewhere_is_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for factor in (2, 3):
        (tmp_path / str(factor)).mkdir()
        (tmp_path / str(factor) / "my.py").write_text(times(factor), encoding="utf-8")
    for factor in (2, 3, 2):
        monkeypatch.chdir(tmp_path / str(factor))
        assert factors("my.py") == (factor, factor)


def test_a_name_of_this_process_trains_and_a_twin_recomputes(tmp_path: Path) -> None:
    def twin(rewards: Any, response_mask: Any) -> Any:
        return [[2 * r * m for r, m in zip(*rows, strict=True)] for rows in zip(rewards, response_mask, strict=True)]

    @mingce.estimator(inputs=("rewards", "response_mask"), twin=twin, whitens=False)
    def doubled(rewards: torch.Tensor, response_mask: torch.Tensor) -> torch.Tensor:
        return 2 * rewards

    try:
        ledger = trained(tmp_path, *SMALL, "estimator=doubled", "audit.every=1").ledger.read(2)
        assert torch.equal(ledger["advantages"], 2 * ledger["rewards"])
        assert "whitened_advantages" not in ledger
        columns = {name: ledger[name].tolist() for name in ("rewards", "response_mask")}
        torch.testing.assert_close(
            torch.tensor(ESTIMATORS["doubled"].estimate(columns, {}).advantages), ledger["advantages"]
        )
    finally:
        del ESTIMATORS["doubled"]


@pytest.mark.xdist_group("ray")
def test_own_code_on_the_ranks_of_a_cluster(ray_cluster: None, file: Path, tmp_path: Path) -> None:
    words = (*SMALL, f"estimator={file}:written_out", f"actor.loss={file}:clipped", "steps=1")
    there = trained(tmp_path, *words, "engine=ray", "ray.ranks=2", name="ray")
    here = trained(tmp_path, *words, name="local")
    for name in ("advantages", "policy_loss"):
        torch.testing.assert_close(there.ledger.read(1)[name], here.ledger.read(1)[name], rtol=1e-4, atol=1e-5)


def test_roles_built_from_code_load_what_they_need(file: Path) -> None:
    config = read_config(None, [*SMALL, f"estimator={file}:odd", f"actor.loss={file}:clipped"])
    roles = build_roles(config)
    roles.close()
    assert roles.critic is None
    assert config.actor.loss in POLICY_LOSSES


@pytest.mark.xdist_group("page")
def test_the_page_shows_what_it_cannot_recompute(run: Path, tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    """Every view of a rollout opens; the sliders begin with an estimator that the page knows, and say so."""
    done = mingce_command("view", run, "--export", tmp_path / "page.html", "--lang", "en")
    assert done.returncode == 0, done.stderr
    page, complaints = browser.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    for place in ("#/", f"#/run/{run.name}", f"#/run/{run.name}/step/2", f"#/run/{run.name}/step/2/rollout/1"):
        page.goto(f"file://{tmp_path / 'page.html'}{place}")
        expect(page.locator("main h1")).to_be_visible()
    for view in ("map", "microscope", "whatif"):
        page.goto(f"file://{tmp_path / 'page.html'}#/run/{run.name}/step/2/rollout/1?view={view}")
        expect(page.locator("main h1")).to_be_visible()
    expect(page.locator(".own-code")).to_contain_text("odd is code of one's own")
    page.locator("input[type=range]").first.press("ArrowLeft")
    expect(page.locator("main h1")).to_be_visible()
    assert complaints == []
