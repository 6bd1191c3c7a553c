"""Data sets as they are shared: directories of splits and shards, several sets with columns of their own, CSV, gzip."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mingce.base.errors import DataError
from mingce.config import read_config
from mingce.engine.local import task_of
from mingce.tasks.data_columns import Keys, examples_of
from mingce.tasks.data_files import set_name
from mingce.tasks.registry import load_task, names_files

RIGHT = "def compute_score(solution_str, ground_truth, **rest): return float(solution_str == ground_truth)"
COMMIT = "0123456789" * 4


def rows(*numbers: int) -> list[dict[str, Any]]:
    return [{"question": f"{n}+1?", "answer": str(n + 1)} for n in numbers]


def write(path: Path, table: list[dict[str, Any]]) -> Path:
    """The rows in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    elif path.suffix == ".arrow":
        made = pa.Table.from_pylist(table)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, made.schema) as out:
            out.write_table(made)
    elif path.suffix in (".csv", ".tsv"):
        between = "\t" if path.suffix == ".tsv" else ","
        cells = [list(table[0]), *([f'"{value}"' for value in row.values()] for row in table)]
        path.write_text("\ufeff" + "\n".join(between.join(line) for line in cells) + "\n", encoding="utf-8")
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in table).encode()))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table))
    return path


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl", ".csv", ".tsv", ".jsonl.gz"])
def test_a_file_is_read_by_its_suffix_and_texts_stay_as_they_stand(tmp_path: Path, suffix: str) -> None:
    table = [{"question": "Who,\nor “what”?", "answer": "007"}, {"question": "另一个？", "answer": "1.50"}]
    file = write(tmp_path / f"quiz{suffix}", table)
    found = list(examples_of([file]))
    assert [(one.prompt[0]["content"], one.ground_truth, one.data_source) for one in found] == [  # type: ignore[index]
        ("Who,\nor “what”?", "007", "quiz"), ("另一个？", "1.50", "quiz"),
    ]  # fmt: skip
    assert names_files(str(file))


LAYOUTS = {
    "parquet shards": ("data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                       "data/test-00000-of-00001.parquet"),
    "files beside each other": ("train_1.jsonl", "train_2.jsonl", "test.jsonl"),
    "saved to disk": ("train/data-00000-of-00002.arrow", "train/data-00001-of-00002.arrow",
                      "test/data-00000-of-00001.arrow"),
    "one configuration": ("main/train-00000.parquet", "main/train-00001.parquet", "main/validation-00000.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_directory_is_one_set_with_its_splits(tmp_path: Path, layout: str) -> None:
    home = tmp_path / "sums"
    for number, name in enumerate(LAYOUTS[layout]):
        write(home / name, rows(10 * number, 10 * number + 1))
    (home / "README.md").write_text("# sums")
    (home / "dataset_info.json").write_text("{}")
    write(home / ".cache" / "train.parquet", rows(99))
    (tmp_path / "right.py").write_text(RIGHT)
    task = load_task(str(home), function=str(tmp_path / "right.py"))
    assert [one.ground_truth for one in task.train_examples()] == ["1", "2", "11", "12"]
    assert [one.ground_truth for one in task.held_out_examples()] == ["21", "22"], "its own split, nothing set apart"
    assert (task.name, task.train_examples()[0].data_source) == ("sums", "sums")
    only = load_task(str(home / Path(LAYOUTS[layout][0]).parent), function=str(tmp_path / "right.py"))
    assert len(only.train_examples()) >= 3, "a folder inside is a set too"


def test_directories_files_and_patterns_are_mixed_each_as_one(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(RIGHT)
    for number in range(3):
        write(tmp_path / "many" / f"train-0000{number}-of-00003.parquet", rows(number))
        write(tmp_path / "loose" / f"part-{number}.jsonl", rows(number + 10))
    named = f"data.train=[{tmp_path}/many,{tmp_path}/loose/part-*.jsonl]"
    config = read_config(None, [named, "data.weights=[0.5,0.5]", f"reward.function={tmp_path}/right.py"])
    task, _ = task_of(config)
    held_out = task.held_out_examples()
    examples = task.train_examples()
    assert len(examples) + len(held_out) == 6
    assert {(examples.file_of(at), one.data_source) for at, one in enumerate(examples)} == {(0, "many"), (1, "loose")}  # type: ignore[attr-defined]
    with pytest.raises(DataError, match=r"no file fits .*none"):
        load_task(f"{tmp_path}/none-*.jsonl", function=f"{tmp_path}/right.py")


def test_a_directory_that_says_not_what_to_take_says_why(tmp_path: Path) -> None:
    for name in ("easy", "hard"):
        write(tmp_path / "sets" / name / "train.jsonl", rows(1, 2))
    with pytest.raises(DataError, match=r"holds several sets; name one of .*easy, .*hard"):
        examples_of([tmp_path / "sets"])
    assert len(examples_of([tmp_path / "sets" / "hard"])) == 2
    write(tmp_path / "tests" / "test.jsonl", rows(1))
    with pytest.raises(DataError, match=r"has no training files \(test\.jsonl\); name the files themselves"):
        examples_of([tmp_path / "tests"])
    assert len(examples_of([tmp_path / "tests"], held_out=True)) == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no data files"):
        examples_of([tmp_path / "empty"])
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(DataError, match=r"cut\.jsonl\.gz cannot be read"):
        examples_of([tmp_path / "cut.jsonl.gz"])
    (tmp_path / "ragged.csv").write_text("question,answer\na,b\na,b,c\n")
    with pytest.raises(DataError, match=r"ragged\.csv cannot be read as CSV \(.*Expected 2 columns, got 3"):
        examples_of([tmp_path / "ragged.csv"])


def test_sets_with_other_columns_are_read_by_the_names_that_each_has(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [{"problem": "1+1?", "solution": "2", "kind": "sums"}])
    two = write(tmp_path / "two.parquet", [{"instruction": "1+2?", "output": "3"}])
    chat = [{"role": "user", "content": "1+3?"}, {"role": "assistant", "content": "4"}]
    three = write(tmp_path / "three.jsonl", [{"messages": chat}])
    keys = Keys(("problem", "instruction"), ("solution", "output"), ("kind",))
    found = list(examples_of([one, two, three], keys))
    assert [(example.ground_truth, example.data_source) for example in found] == [
        ("2", "sums"),
        ("3", "two"),
        ("4", "three"),
    ]
    with pytest.raises(
        DataError, match=r"two\.parquet has no column `prompt` or .*data\.prompt_key=\[problem,instruction\]"
    ):
        examples_of([one, two], Keys(("problem",)))
    with pytest.raises(DataError, match=r"no column `problm` or `instructon` .*did you mean data\.prompt_key=problem"):
        examples_of([one], Keys(("problm", "instructon")))
    config = read_config(None, [f"data.train=[{one},{three}]", "data.prompt_key=problem", "data.answer_key=solution"])
    assert list(Keys.of(config.data).prompt) == ["problem"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("sets/math/train-00000-of-00002.parquet", "math"), ("math.v2.jsonl.gz", "math.v2"),
        ("org/gsm8k/main/test-00000-of-00001.parquet", "gsm8k"), ("gsm8k/socratic/train.parquet", "socratic"),
        (f"hub/datasets--org--quiz/snapshots/{COMMIT}/data/train-00000-of-00001.parquet", "quiz"),
        ("quiz-00003.jsonl", "quiz"), ("testing.jsonl", "testing"),
    ],
)  # fmt: skip
def test_a_set_is_called_by_what_says_most(path: str, name: str) -> None:
    assert set_name(Path("/data") / path) == name
