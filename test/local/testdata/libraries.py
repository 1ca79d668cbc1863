"""Writes what the parts of docs/data.md read, with the libraries themselves: 200 records, with the
numbers from 0 to 199, in files of several lengths, one of them without a record."""
import json
import os
import random
import sys

home = sys.argv[1]
LENGTHS = [31, 17, 0, 40, 25, 3, 44, 40]
records = [{"n": n, "text": "x" * (n * 7 % 30)} for n in range(sum(LENGTHS))]


def files():
    at = 0
    for file, length in enumerate(LENGTHS):
        yield file, records[at:at + length]
        at += length


def lines():
    os.makedirs(home + "/lines")
    for file, some in files():
        with open(home + "/lines/%03d.jsonl" % file, "w") as out:
            out.writelines(json.dumps(r) + "\n" for r in some)


def tars():
    import webdataset as wds

    os.makedirs(home + "/tars")
    for file, some in files():
        if some:
            with wds.TarWriter(home + "/tars/%03d.tar" % file) as out:
                for r in some:
                    out.write({"__key__": "%06d" % r["n"], "json": r})


def rows():
    import pyarrow
    import pyarrow.parquet

    os.makedirs(home + "/rows")
    for file, some in files():
        schema = pyarrow.schema([("n", pyarrow.int64()), ("text", pyarrow.string())])
        table = pyarrow.Table.from_pylist(some, schema=schema)
        pyarrow.parquet.write_table(table, home + "/rows/%03d.parquet" % file, row_group_size=15)


def same(r):
    return r


def optimized():
    from litdata import optimize

    optimize(fn=same, inputs=records, output_dir=home + "/optimized", chunk_size=20, num_workers=1)


if __name__ == "__main__":
    random.seed(1)
    for write in sys.argv[2:]:
        globals()[write]()
