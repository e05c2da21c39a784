from arq import func
from arq_jobs import WorkerSettings, shipped
from reporting import telling

# Changed in place, as arq ignores inherited settings.
WorkerSettings.functions = [func(telling(shipped), name="shipped", keep_result=0)]
WorkerSettings.job_timeout = 3  # a killed worker's job is redelivered ten seconds after this
WorkerSettings.max_jobs = 100
WorkerSettings.poll_delay = 0.02
