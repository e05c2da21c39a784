"""One service for all tests of engines, in a separate process."""

import pytest
from support.engine_lab import environment
from support.engine_oracle import oracle


@pytest.fixture(scope="session")
def _oracle():
    with oracle() as service, pytest.MonkeyPatch.context() as patch:
        # Before any engine starts: what it starts has them, too.
        for name, value in environment().items():
            patch.setenv(name, value)
        patch.setenv("PUSHSDK_BASE_URL", service.base_url)
        patch.setenv("PUSHSDK_API_KEY", service.api_key)
        yield service


@pytest.fixture
def service(_oracle):
    """The service, without requests so far."""
    _oracle.begin()
    return _oracle
