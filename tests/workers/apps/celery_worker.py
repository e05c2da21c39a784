from celery_jobs import app, shipped
from reporting import telling_sync

__all__ = ["app"]

shipped.run = telling_sync(shipped.run)
app.conf.broker_transport_options = {
    "visibility_timeout": 3,  # seconds after which a killed worker's job is redelivered,
    "unacked_restore_interval": 1,  # seconds between checks for such jobs,
    "unacked_restore_throttle": 1,  # by each worker,
    "unacked_mutex_expire": 2,  # seconds until the lock of a worker killed during its check expires
}
