"""Print the curves of the run in a directory as JSON: by tag, the step and the value of points."""

import json
import sys

from tensorboard.backend.event_processing import event_accumulator

run = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
run.Reload()
tags = run.Tags()["scalars"]
print(json.dumps({tag: [{"Step": p.step, "Value": p.value} for p in run.Scalars(tag)] for tag in tags}))
