from celery_jobs import app, shipped
from told import telling_sync

__all__ = ["app"]

shipped.run = telling_sync(shipped.run)
app.conf.broker_transport_options = {
    "visibility_timeout": 3,  # seconds after which a killed worker's job comes again,
    "unacked_restore_interval": 1,  # when somebody looks for it,
    "unacked_restore_throttle": 1,  # each time,
    "unacked_mutex_expire": 2,  # unless one that was killed while it looked keeps the others from it
}
