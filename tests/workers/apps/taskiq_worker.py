import taskiq_jobs
from taskiq_jobs import broker
from told import telling

__all__ = ["broker"]

broker.idle_timeout = 2_000  # milliseconds after which a job of a killed worker is taken up
broker.unacknowledged_lock_timeout = 15.0  # of one that was killed while it looked; shorter ones fail whoever is slow
taskiq_jobs.shipped.original_func = telling(taskiq_jobs.shipped.original_func)
