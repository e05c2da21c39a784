"""The Django page: its app runs in a project, with a view, a command and a test to copy."""

import os
import re

import pytest
from support.docs import page
from support.programs import address_of, run_python
from support.worker_frameworks import installed
from support.worker_lab import MODULES, ROOT

from pushsdk.emulator import Emulator, Fault
from pushsdk.testing.inbox import in_thread

APP = [
    "shop/push.py",
    "shop/models.py",
    "shop/urls.py",
    "shop/views.py",
    "shop/management/commands/announce.py",
    "shop/test_views.py",
]
PROJECT = """
from shop.settings import *

DEBUG = False  # as in production
ALLOWED_HOSTS = ["*"]
"""


class Project:
    """A new Django project with the app of the page."""

    def __init__(self, folder, emulator):
        self.emulator = emulator
        self._folder = folder
        self._environment = {
            **dict.fromkeys(name for name in os.environ if name.startswith("PUSHSDK_")),
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "DJANGO_SETTINGS_MODULE": "project",
        }
        self.run("django", "startproject", "shop", ".", variables=False)
        with (folder / "shop" / "settings.py").open("a") as settings:
            settings.write(MODULES["shop/settings.py"])
        for name in APP:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(MODULES[name])
        (folder / "project.py").write_text(PROJECT)
        for command in (["makemigrations", "shop"], ["migrate"]):
            self.run("django", *command, "--verbosity=0", variables=False)

    def run(self, *command, variables=True):
        """Run a module in the folder of the project, and return what it printed."""
        environ = self._environment | (address_of(self.emulator) if variables else {})
        ended = run_python("-m", *command, cwd=self._folder, **environ)
        assert ended.code == 0, ended
        return ended.out + ended.err

    def shell(self, code):
        """Run code in a process of the project."""
        setup = "import django; django.setup()\nfrom django.test import Client\nfrom shop.models import Order\n"
        (self._folder / "script.py").write_text(setup + code)
        return self.run("script")


@pytest.fixture
def project(tmp_path):
    installed("django", "django")
    with in_thread(Emulator()) as emulator:
        yield Project(tmp_path, emulator)


VIEWS = """
from django.db import transaction
ann, bob = (Order.objects.create(user_id=name) for name in ("ann", "bob"))
for _ in range(2):
    assert Client().post(f"/orders/{ann.pk}/ship").status_code == 204
assert Client().post("/orders/7/ship").status_code == 404
with transaction.atomic():
    Client().post(f"/orders/{bob.pk}/ship")
    transaction.set_rollback(True)
assert [order.shipped for order in Order.objects.order_by("user_id")] == [True, False]
"""
CURL = """
carl = Order.objects.create(user_id="carl")
client = Client(enforce_csrf_checks=True)
assert client.post(f"/orders/{carl.pk}/ship").status_code == 403
client.cookies["csrftoken"] = "TOKEN"
assert client.post(f"/orders/{carl.pk}/ship", headers={"X-CSRFToken": "TOKEN"}).status_code == 204
"""


def test_a_view_pushes_once_after_its_transaction_and_checks_the_token_of_the_page(project):
    token = re.search(r"^\$ token=(\w+)$", page("django").text, re.MULTILINE)
    project.shell(VIEWS + CURL.replace("TOKEN", token[1]))
    assert project.emulator.users() == {"ann": 1, "carl": 1}


def test_a_failed_push_or_a_missing_key_is_logged_and_the_order_is_shipped(project):
    project.emulator.set_faults([Fault.status(400)])
    assert "rejected: HTTP 400" in project.shell(VIEWS)
    without_key = "import os; del os.environ['PUSHSDK_API_KEY']; Order.objects.all().delete()"
    assert "ConfigurationError: no api_key" in project.shell(without_key + VIEWS)
    assert project.emulator.users() == {}


def test_the_command_pushes_to_each_customer_once_however_often_it_runs(project):
    project.shell('Order.objects.bulk_create([Order(user_id=f"user-{n % 2000}") for n in range(3000)])')
    for warnings in 0, 1:
        output = project.run("django", "announce", "--run", "spring.run")
        assert "2000 accepted, 0 unknown, 0 not sent\n" in output
        assert output.count("nothing was sent: an earlier call completed this run") == warnings
    assert project.emulator.users() == {f"user-{number}": 1 for number in range(2000)}
    with pytest.raises(AssertionError, match="the following arguments are required: --run"):
        project.run("django", "announce")


def test_a_check_needs_neither_address_nor_key_and_the_test_of_the_page_passes_when_it_is_copied(project):
    assert "no issues" in project.run("django", "check", variables=False)
    installed("pytest_django", "django")
    options = ["-q", "-p", "no:cacheprovider", "--ds", "shop.settings"]
    assert "1 passed" in project.run("pytest", *options, "shop/test_views.py", variables=False)
