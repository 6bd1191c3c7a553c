"""Our decoder, a batch of answers at a turn."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from functools import partial
from typing import Any, cast

import torch
from transformers import AutoModelForCausalLM
from turns import Over, Turn

from mingce.models.sampling import Sampling, generate

asked: dict[str, Any] = json.loads(sys.argv[1])
torch.set_num_threads(asked["threads"])
model = cast(Any, AutoModelForCausalLM).from_pretrained(asked["model"], dtype=torch.float32).eval()
turn, seed = Turn(), 0
with suppress(Over):
    turn.wait()
    while True:
        seeds = range(seed, seed + asked["rows"])
        drawn = generate(model, asked["prompts"], Sampling(max_new_tokens=asked["length"]), seeds=seeds, pad_id=0)
        seed, tokens = seed + asked["rows"], int(drawn.attention_mask.sum())
        turn.wait(partial(dict, tokens=tokens))
