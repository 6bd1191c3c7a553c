"""What a Parquet file would unpack to, looked at before anything is unpacked: few bytes can stand for gigabytes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

MAX_ROWS = 10_000_000
MAX_VALUES = 1 << 25  # of one column in one row group
MAX_TEXT = 256 << 20  # bytes of one column of texts in one row group
MAX_TOTAL = 1 << 29  # values of one column in the whole file
MAX_TOTAL_TEXT = 4 << 30


def check_promises(path: Path, about: pq.FileMetaData) -> None:
    """ValueError when the file would unpack to more than a ledger can need."""
    if about.num_rows > MAX_ROWS:
        raise ValueError(f"it promises {about.num_rows:,} rows")
    totals: dict[str, list[int]] = {}
    for group in range(about.num_row_groups):
        one = about.row_group(group)
        for at in range(one.num_columns):
            chunk = one.column(at)
            values, text = chunk.num_values, 0
            if chunk.physical_type == "BYTE_ARRAY":
                text = chunk.total_uncompressed_size
                if chunk.has_dictionary_page and values * text > MAX_TEXT and text <= MAX_TEXT >= values:
                    text = _repeated_text(path, group, chunk.path_in_schema)
            total = totals.setdefault(chunk.path_in_schema, [0, 0])
            total[0] += values
            total[1] += text
            if values > MAX_VALUES or text > MAX_TEXT or total[0] > MAX_TOTAL or total[1] > MAX_TOTAL_TEXT:
                promise = f"{total[0]:,} values and {total[1]:,} bytes of text"
                raise ValueError(f"column '{chunk.path_in_schema}' would unpack to {promise}")


def _repeated_text(path: Path, group: int, name: str) -> int:
    """The bytes of a column of texts that are stored once and pointed to, each as often as it is pointed to."""
    total = 0
    with pq.ParquetFile(path, read_dictionary=[name]) as file:
        for chunk in file.read_row_group(group, columns=[name], use_threads=False).column(0).chunks:
            lengths = pc.binary_length(chunk.dictionary)
            total += pc.sum(pc.cast(lengths.take(chunk.indices), "int64")).as_py() or 0
    return total
