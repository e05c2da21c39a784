"""The scenario `single` over TLS."""

from functools import partial

from benchmarks import single

run = partial(single.run, tls=True)
