from arq import func
from arq_jobs import WorkerSettings, shipped
from told import telling

# In place: arq does not look at what a class inherits.
WorkerSettings.functions = [func(telling(shipped), name="shipped", keep_result=0)]
WorkerSettings.job_timeout = 3  # a job of a killed worker is taken up ten seconds after this
WorkerSettings.max_jobs = 100
WorkerSettings.poll_delay = 0.02
