"""Data files: what is read, what is refused and how, and what happens to over-long prompts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mingce.base.errors import DataError, UnknownNameError
from mingce.tasks.base import Example, Prompt
from mingce.tasks.data import Examples, filter_prompts
from mingce.tasks.data_columns import examples_of
from mingce.tasks.file_task import FileTask
from mingce.tasks.registry import unscored

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]


def row(index: int = 0, **changes: Any) -> dict[str, Any]:
    columns = {
        "data_source": "sums",
        "prompt": CHAT if index % 2 else f"{index}+1?",
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(index + 1)},
        "extra_info": {"split": "train", "index": index},
    }
    return columns | changes


def write(path: Path, rows: list[Any]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(line) + "\n" for line in rows), encoding="utf-8")
    else:
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_every_format_gives_the_same_examples(tmp_path: Path, suffix: str) -> None:
    chats = [row(index, prompt=CHAT) for index in range(5)]
    texts = [row(index, prompt=f"{index}+1?") for index in range(3)]
    examples = examples_of([write(tmp_path / f"a{suffix}", chats), write(tmp_path / f"b{suffix}", texts)])
    assert len(examples) == 8
    assert examples[4] == Example(f"a{suffix}:5", CHAT, "5", "sums", {"split": "train", "index": 4})
    assert examples[5] == Example(f"b{suffix}:1", "0+1?", "1", "sums", {"split": "train", "index": 0})
    assert examples[-1] == examples[7] == list(examples)[7]
    assert examples[3:6] == list(examples)[3:6]
    assert examples.data_sources == ["sums"]
    assert len({example.uid for example in examples}) == 8


def test_files_of_the_same_name_have_uids_of_their_own(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder / "a.jsonl", [row()])
    examples = examples_of([tmp_path / "one/a.jsonl", tmp_path / "two/a.jsonl"])
    assert examples[0].uid != examples[1].uid


def test_empty_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row(0)).encode() + b"\r\n\r\n" + json.dumps(row(1)).encode())
    assert [example.uid for example in examples_of([path])] == ["a.jsonl:1", "a.jsonl:3"]


def test_missing_extra_info_is_empty_and_a_model_style_needs_no_ground_truth(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [row(extra_info=None, reward_model={"style": "model"})])
    (example,) = examples_of([path])
    assert example.extra_info == {}
    assert example.ground_truth is None


BAD_ROWS = [
    ({"prompt": None}, "`prompt`"),
    ({"prompt": ""}, "`prompt`"),
    ({"prompt": []}, "`prompt`"),
    ({"prompt": [{"role": "user"}]}, "message 1 of `prompt`"),
    ({"prompt": [*CHAT, {"role": "user", "content": None}]}, "message 3 of `prompt`"),
    ({"data_source": 3}, "`data_source`"),
    ({"reward_model": "42"}, "`ground_truth`"),
    ({"reward_model": {"style": "rule"}}, "`ground_truth`"),
    ({"extra_info": "x"}, "`extra_info`"),
]


@pytest.mark.parametrize(("changes", "what"), BAD_ROWS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_a_bad_row_is_named(tmp_path: Path, suffix: str, changes: dict[str, Any], what: str) -> None:
    path = write(tmp_path / f"a{suffix}", [row(), row(1), row(2, **changes)])
    with pytest.raises(DataError) as caught:
        examples_of([path])
    assert what in str(caught.value)
    assert f"{path}, {'line' if suffix == '.jsonl' else 'row'} 3" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_row_of_a_parquet_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [row(index, prompt=None if index == 3 else "x") for index in range(5)])
    with pytest.raises(DataError, match=r"a\.parquet, row 4: `prompt`"):
        examples_of([path])


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_a_missing_prompt_is_named(tmp_path: Path, suffix: str) -> None:
    rows = [{key: value for key, value in row(2 * index).items() if key != "prompt"} for index in range(2)]
    with pytest.raises(
        DataError, match=r"has no column `prompt` or `messages` or `conversations` or `question` .*ability"
    ):
        examples_of([write(tmp_path / f"a{suffix}", rows)])


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_an_empty_file_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    for content in ("", "\n", "[]" if suffix == ".json" else " \n\n"):
        path.write_text(content)
        with pytest.raises(DataError, match="holds no rows"):
            examples_of([path])


def test_a_parquet_file_without_rows_or_without_bytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist([row()]).slice(0, 0), path)
    with pytest.raises(DataError, match="holds no rows"):
        examples_of([path])
    path.write_bytes(b"")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        examples_of([path])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_parquet_file_is_refused(tmp_path: Path, share: float) -> None:
    path = write(tmp_path / "a.parquet", [row(2 * index) for index in range(50)])
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="cannot be read as Parquet") as caught:
        examples_of([path])
    assert "\n" not in str(caught.value)


def test_a_parquet_file_with_a_damaged_page_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", [row(2 * index) for index in range(50)])
    content = bytearray(path.read_bytes())
    content[60:90] = bytes(30)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet"):
        examples_of([path])


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(row()) + "\n\n" + json.dumps(row())[:-3] + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 3 is not JSON"):
        examples_of([path])
    path.write_bytes(json.dumps(row()).encode() + b'\n{"prompt": "\xff"}\n')
    with pytest.raises(DataError, match=r"a\.jsonl, line 2 is not JSON"):
        examples_of([path])
    path.write_text(json.dumps(row()) + "\n[1, 2]\n")
    with pytest.raises(DataError, match="line 2 is not an object"):
        examples_of([path])


def test_a_broken_json_file_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[\n{"prompt": "x"},\n{"prompt": }\n]')
    with pytest.raises(DataError, match=r"a\.json, line 3 is not JSON"):
        examples_of([path])
    path.write_text('{"prompt": "x"}')
    with pytest.raises(DataError, match="not a JSON list"):
        examples_of([path])


def test_an_unknown_suffix_or_an_absent_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("prompt\nx\n")
    with pytest.raises(DataError, match=r"a\.txt is none of \.parquet, \.jsonl, \.json"):
        examples_of([tmp_path / "a.txt"])
    with pytest.raises(DataError, match="there is no data file"):
        examples_of([tmp_path / "a.jsonl"])
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(DataError, match=r"folder\.parquet holds no data files"):
        examples_of([tmp_path / "folder.parquet"])


def texts(*prompts: Prompt) -> list[Example]:
    return [Example(f"e{index}", prompt, "", "s") for index, prompt in enumerate(prompts)]


def length(prompt: Prompt) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(message["content"]) for message in prompt)


def test_over_long_prompts_are_left_out_cut_or_refused() -> None:
    examples = texts("abc", "abcdef", "abcd", CHAT)
    kept, overlong = filter_prompts(examples, each(length), 4)
    assert [example.prompt for example in kept] == ["abc", "abcd"]
    assert overlong == 2
    kept, overlong = filter_prompts(examples[:3], each(length), 4, "cut")
    assert [(example.uid, example.prompt) for example in kept] == [("e0", "abc"), ("e1", "cdef"), ("e2", "abcd")]
    assert overlong == 1
    with pytest.raises(DataError, match="prompt of e3 has 13 tokens where 8 are allowed, and a chat cannot be cut"):
        filter_prompts(examples, each(length), 8, "cut")
    with pytest.raises(DataError, match="prompt of e1 has 6 tokens where 4 are allowed;"):
        filter_prompts(examples, each(length), 4, "error")
    with pytest.raises(DataError, match="every one of the 4 prompts"):
        filter_prompts(examples, each(length), 2)
    with pytest.raises(UnknownNameError, match="filter"):
        filter_prompts(examples, each(length), 2, "filtr")  # type: ignore[arg-type]


def each(length: Callable[[Prompt], int]) -> Callable[[list[Prompt]], list[int]]:
    return lambda prompts: [length(prompt) for prompt in prompts]


@given(st.lists(st.text(st.sampled_from("ab "), min_size=1, max_size=30), min_size=1, max_size=10), st.integers(1, 20))
def test_a_cut_prompt_is_the_longest_end_that_fits(prompts: list[str], most: int) -> None:
    def merging(prompt: Prompt) -> int:  # "ab" is one token, so a longer text may have as few tokens as a shorter one
        assert isinstance(prompt, str)
        return len(prompt.replace("ab", "x"))

    kept, overlong = filter_prompts(texts(*prompts), each(merging), most, "cut")
    assert overlong == sum(merging(prompt) > most for prompt in prompts)
    for before, after in zip(prompts, kept, strict=True):
        assert isinstance(after.prompt, str)
        assert before.endswith(after.prompt)
        assert merging(after.prompt) <= most
        if after.prompt != before:
            assert merging(before[-len(after.prompt) - 1 :]) > most


def test_examples_held_out_of_one_file_are_never_trained_on(tmp_path: Path) -> None:
    examples: Examples = examples_of([write(tmp_path / "a.jsonl", [row(index) for index in range(50)])])
    task = FileTask("sums", examples, None, unscored, seed=1)
    train = {example.uid for example in task.train_examples()}
    held_out = {example.uid for example in task.held_out_examples()}
    assert len(held_out) == 5
    assert not train & held_out
    assert len(train | held_out) == 50
    again = FileTask("sums", examples, None, unscored, seed=1)
    assert [example.uid for example in again.held_out_examples()] == [e.uid for e in task.held_out_examples()]
    other = FileTask("sums", examples, None, unscored, seed=2)
    assert {example.uid for example in other.held_out_examples()} != held_out


def test_one_example_cannot_be_split(tmp_path: Path) -> None:
    task = FileTask("sums", examples_of([write(tmp_path / "a.jsonl", [row()])]), None, unscored)
    with pytest.raises(DataError, match="held-out"):
        task.train_examples()
