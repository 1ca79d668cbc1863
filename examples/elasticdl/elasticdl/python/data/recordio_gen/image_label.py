"""Write a data set as RecordIO files: run elasticdl dataset."""
import argparse
import os
import sys

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("dir", help="directory in which that of the data set is made")
parser.add_argument("--dataset", choices=["mnist", "fashion_mnist", "cifar10"], default="mnist")
parser.add_argument("--records_per_shard", type=int, default=16 * 1024, help="records in a file")
parser.add_argument("--source", help="directory or URL of the data set's files, instead of its mirrors")
args = parser.parse_args()

command = ["elasticdl", "dataset", args.dataset.replace("_", "-"), os.path.join(args.dir, args.dataset),
           f"--records_per_shard={args.records_per_shard}"]
if args.source:
    command.append(f"--source={args.source}")
try:
    os.execvp(command[0], command)
except FileNotFoundError:
    sys.exit("elasticdl: not found on PATH; `make build` in the repository makes build/elasticdl")
