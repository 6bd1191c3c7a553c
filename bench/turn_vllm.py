"""vLLM on the CPU, a batch of answers at a turn. Run by the Python of vLLM's own environment."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

from turns import Over, Turn

asked: dict[str, Any] = json.loads(sys.argv[1])
os.environ |= {
    "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": str(max(os.sched_getaffinity(0))),
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip

from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # noqa: E402

model = LLM(
    model=asked["model"], dtype="float32", enforce_eager=True, max_model_len=asked["prompt"] + asked["length"] + 8,
    max_num_seqs=asked["rows"], logprobs_mode="processed_logprobs", enable_prefix_caching=False,
)  # fmt: skip
settings = SamplingParams(
    temperature=1.0, top_p=1.0, top_k=0, max_tokens=asked["length"], ignore_eos=True, logprobs=0, detokenize=False
)
prompts = [{"prompt_token_ids": ids} for ids in asked["prompts"]]
turn = Turn()
with suppress(Over):
    turn.wait()
    while True:
        drawn = model.generate(prompts, settings, use_tqdm=False)
        tokens = sum(len(one.outputs[0].token_ids) for one in drawn)
        turn.wait(partial(dict, tokens=tokens))
