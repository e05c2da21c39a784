from faststream import BaseMiddleware
from faststream_jobs import app, broker
from reporting import telling

__all__ = ["app"]


class Telling(BaseMiddleware):
    async def consume_scope(self, call_next, msg):
        order = (await msg.decode())["order"]

        async def job(order):
            return await call_next(msg)

        return await telling(job)(order=order)


broker.add_middleware(Telling)
for subscriber in broker.subscribers:
    if subscriber.stream_sub.consumer == "again":
        subscriber.min_idle_time = 2_000  # milliseconds
