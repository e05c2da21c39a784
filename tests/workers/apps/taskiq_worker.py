import taskiq_jobs
from reporting import telling
from taskiq_jobs import broker

__all__ = ["broker"]

broker.idle_timeout = 2_000  # milliseconds after which a killed worker's job is redelivered
broker.unacknowledged_lock_timeout = 15.0  # for a worker killed during its check; a shorter lock fails slow workers
taskiq_jobs.shipped.original_func = telling(taskiq_jobs.shipped.original_func)
