"""The task types of ElasticDL's protocol, without protobuf."""

NONE, TRAINING, EVALUATION, PREDICTION, WAIT, TRAIN_END_CALLBACK = range(6)
