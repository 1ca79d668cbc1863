"""ElasticDL's constants that scripts use."""


class TrainingLoopStatus:
    START = 1
    END = 2
    PENDING = 3


class DefaultTimeSecs:
    SEND_HEARTBEAT = 1


class WorkerEnv:
    MASTER_ADDR = "MASTER_ADDR"
    WORKER_ID = "WORKER_ID"
    WORKER_NUM = "WORKER_NUM"
