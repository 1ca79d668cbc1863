"""Has the task types by their names, without protobuf."""

NONE, TRAINING, EVALUATION, PREDICTION, WAIT, TRAIN_END_CALLBACK = range(6)
