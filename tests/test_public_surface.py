"""Every public name is documented, typed, and named after its public package."""

import ast
import importlib
import inspect
import itertools
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from support.programs import run_program

import pushsdk
import pushsdk.options
import pushsdk.testing
from pushsdk import AsyncPushClient, MobilePush, NotSentError, Outcome
from pushsdk.claims import Claim

HERE = Path(__file__).parent
NAMES = pushsdk.__all__
PACKAGES = ["pushsdk", *(f"pushsdk.{name}" for name in ("arrow", "claims", "emulator", "otel", "spark", "testing"))]


def members(kind):
    """The public names that a class defines itself, and that are functions or properties."""
    own = {
        name: member
        for base in kind.__mro__
        if base.__module__.startswith("pushsdk")
        for name, member in vars(base).items()
    }
    return [
        name
        for name, member in own.items()
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property))
    ]


def test_all_is_everything_that_exists_and_that_a_star_import_brings():
    assert all(hasattr(pushsdk, name) for name in NAMES)
    public = {
        name for name, member in vars(pushsdk).items() if not name.startswith("_") and not inspect.ismodule(member)
    }
    assert public == set(NAMES) - {"__version__"} | {"TYPE_CHECKING"}
    assert dir(pushsdk) == sorted(NAMES)
    names = {}
    exec("from pushsdk import *", names)
    assert names.keys() - {"__builtins__"} == set(NAMES)


@pytest.mark.parametrize("package", [pushsdk, pushsdk.testing])
def test_the_imports_for_type_checkers_are_the_real_ones(package):
    tree = ast.parse(Path(package.__file__).read_text())
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module != "pushsdk._core.words":
            module = importlib.import_module(node.module)
            of_star = vars(module).keys() & {*package.__all__}
            names = of_star if node.names[0].name == "*" else {name.name for name in node.names}
            imported |= dict.fromkeys(names, module)
    assert imported.keys() == {*package.__all__, "TYPE_CHECKING"}
    for name in package.__all__:
        assert getattr(imported[name], name) is getattr(package, name)


def test_another_name_is_an_attribute_error_as_in_any_module(monkeypatch):
    for package, wrong in ((pushsdk, "_core_"), (pushsdk, "show_path"), (pushsdk.testing, "nothing")):
        assert not hasattr(package, wrong)
        with pytest.raises(ImportError, match=wrong):
            exec(f"from {package.__name__} import {wrong}")
    monkeypatch.setattr(pushsdk, "__all__", [*NAMES, "Nowhere"])
    assert not hasattr(pushsdk, "Nowhere")


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_class_or_function_names_its_public_package(package):
    pytest.importorskip({"pushsdk.spark": "pyspark"}.get(package, package))
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if str(getattr(value, "__module__", None)).startswith("pushsdk"):
            assert value.__module__ == package
            assert value.__qualname__ == name
            assert not isinstance(value, type) or typing.get_type_hints(value) is not None


def test_a_pickle_of_a_public_value_names_the_public_package_and_loads_in_another_process():
    values = [MobilePush(), NotSentError("no"), Outcome.UNKNOWN, Claim("token", b"record"), AsyncPushClient]
    data = pickle.dumps(values)
    assert b"pushsdk._" not in data
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer))"
    loaded = subprocess.run([sys.executable, "-c", code], input=data, stdout=subprocess.PIPE, check=True)
    assert loaded.stdout.decode().strip() == repr(values)


def test_the_classes_of_a_program_that_imports_the_client_alone_say_pushsdk():
    code = """
from pushsdk import AsyncPushClient
import pushsdk._runs.api, pushsdk._core.errors as errors, pushsdk._runs.report as report
import pushsdk._runs.run_file.journal as journal

print(errors.NotSentError, report.BroadcastError, journal.Row)
"""
    names = ("NotSentError", "BroadcastError", "Row")
    assert re.findall(r"pushsdk\S*(?=.>)", run_program(code).out) == [f"pushsdk.{name}" for name in names]


def test_every_public_struct_is_decoded_although_its_name_has_not_been_used():
    code = """
import importlib, msgspec, pushsdk

pushsdk.BroadcastReport  # no later module has a Struct
values = [value for name in pushsdk._MODULES for value in vars(importlib.import_module(name)).values()]
structs = {value for value in values if isinstance(value, type) and issubclass(value, msgspec.Struct)}
public = [struct for struct in structs if struct.__module__ == "pushsdk"]
for struct in public:
    msgspec.json.Decoder(struct)
print(len(public) > 20, "Outcome" in vars(pushsdk))
"""
    assert run_program(code) == (0, "True False\n", "")


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import pushsdk, pushsdk.testing.plugin", {"msgspec", "aiohttp", "asyncio", "tenacity", "pushsdk.emulator"}),
        ("from pushsdk import MobilePush, PushError, RetryPolicy, lint", {"aiohttp", "asyncio", "tenacity"}),
        (
            "from pushsdk import AsyncPushClient",
            {
                "tenacity",
                "pushsdk._runs.api",
                "pushsdk._sqlite",
                "pushsdk.claims.sqlite",
                "pushsdk.otel",
                "opentelemetry",
            },
        ),
        ("import pushsdk.arrow", {"pyspark", "ray", "dask", "pandas"}),
    ],
)
def test_an_import_brings_no_more_than_it_needs(statement, absent):
    loaded = run_program(f"import sys; {statement}; print(*sys.modules)")
    assert loaded.code == 0
    assert absent.isdisjoint(loaded.out.split())


def test_every_public_name_is_documented():
    public = [getattr(package, name) for package in (pushsdk, pushsdk.testing) for name in package.__all__]
    classes = [value for value in public if inspect.isclass(value) and value.__module__.startswith("pushsdk")]
    functions = [value for value in public if inspect.isroutine(value)]
    assert [value for value in (*classes, *functions) if not value.__doc__] == []
    assert [(kind, name) for kind in classes for name in members(kind) if not inspect.getdoc(getattr(kind, name))] == []


def hover_texts(module):
    """The docstrings below the fields of each class of a module, which editors show."""
    tree = ast.parse(Path(importlib.import_module(module).__file__).read_text())
    return {
        kind.name: {
            ast.unparse(field.target): ast.literal_eval(text.value)
            for field, text in itertools.pairwise(kind.body)
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
    }


def texts_of_fields(kind):
    """The sentences in a class docstring, which help() and editors show."""
    listed = inspect.getdoc(kind).partition("Attributes:\n")[2].partition("\n\n")[0]
    return {name: " ".join(text.split()) for name, text in re.findall(r"(?m)^ {4}(\w+): (.*(?:\n {8}.*)*)", listed)}


@pytest.mark.parametrize("kind", [MobilePush, pushsdk.CampaignRequest, pushsdk.RetryPolicy, pushsdk.StopPolicy])
def test_the_docstring_of_a_class_that_users_construct_has_a_sentence_for_each_field(kind):
    assert tuple(texts_of_fields(kind)) == kind.__struct_fields__


def test_an_editor_shows_the_same_text_for_a_key_of_a_dict_as_for_the_field_of_the_struct():
    texts = hover_texts("pushsdk._core.models")
    for name in (name for name in NAMES if name.endswith("Dict")):
        struct = getattr(pushsdk, {"CampaignDict": "CampaignRequest"}.get(name, name.removesuffix("Dict")))
        names = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
        assert texts[name] == {names[field]: text for field, text in texts_of_fields(struct).items()}
        assert texts[name].keys() == getattr(pushsdk, name).__annotations__.keys()


def test_an_editor_shows_a_text_for_every_option():
    texts = hover_texts("pushsdk.options")
    shown = {option for name in pushsdk.options.__all__ for option in texts[name]}
    assert shown == {option for name in texts for option in getattr(pushsdk.options, name).__annotations__}


@pytest.mark.parametrize("package", [pushsdk, pushsdk.testing])
def test_every_public_name_is_used_in_the_typing_test(package):
    used = re.findall(r"\w+", (HERE / "typing" / "api.py").read_text())
    assert {*package.__all__} - {*used} == set()
