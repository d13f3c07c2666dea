"""Cases answered by a server: what it is asked, who gets the key, what becomes of its answers."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from expert_cli import api
from expert_cli.artifacts.export import export_expert
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation.endpoint import KEY
from expert_cli.runs.metrics import read_json
from expert_cli.utils.reporter import NullReporter
from tests.schemas import valid
from tests.train.projects import Told, case, command, manifest_with, project, trained_in, write_rows

SEVEN = "7"


class Asked(NamedTuple):
    """A request: its path, its Authorization, what it says."""

    path: str
    key: str | None
    body: dict[str, Any]


Reply = tuple[int, Any, dict[str, str]]
"""A status, what is said, and headers."""


def said(text: str, finish: str = "stop") -> Reply:
    """Return the reply that holds an answer, to a chat and to a prompt alike."""
    choice = {"message": {"content": text}, "text": text, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"completion_tokens": 2}}, {}


@contextmanager
def served(reply: Callable[[Asked], Reply]) -> Iterator[tuple[str, list[Asked]]]:
    """Serve; yield the address and what was asked. reply: answers a request."""
    asked: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
            one = Asked(self.path, self.headers["Authorization"], body)
            asked.append(one)
            status, told, headers = reply(one)
            content = json.dumps(told).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def evaluated(url: str, adapter: Path, **more: Any) -> dict[str, Any]:
    return api.evaluate(adapter, endpoint=url, model="m", offline=True, **more).as_json()


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(KEY, "sk-1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # nothing of this machine goes there
    monkeypatch.delenv("no_proxy", raising=False)
    return "sk-1"


@pytest.fixture(scope="module")
def own(trained_expert: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was evaluated: it answers 7."""
    run = shutil.copytree(
        trained_expert(template="alpaca", system_prompt="Be brief."), tmp_path_factory.mktemp("own") / "run"
    )
    api.evaluate(run, offline=True)
    return run


def test_an_expert_is_judged_as_it_is_served(own: Path, tmp_path: Path, key: str) -> None:
    """By the prompts of expert.json; what differs from its own answers is told; nothing of the run changes."""
    before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}

    def reply(asked: Asked) -> Reply:
        assert KEY not in os.environ
        return said("8" if "3" in asked.body["messages"][0]["content"] else SEVEN)

    with served(reply) as (url, asked):
        args = ["evaluate", "--adapter", own, "--endpoint", url, "--model", "m", "--offline"]
        args += ["--against", own / "evaluation.json", "--max-drop", "1"]
        done = command(*args, "--output", tmp_path / "served.json")
    assert done.exit_code == 0, done.output
    assert os.environ[KEY] == key
    assert "1 of 8 answers have another text" in done.output
    document = read_json(tmp_path / "served.json")
    valid(document, "evaluate")
    assert (document["correct"], document["against"]["differ"]) == (5, ["n3"])
    generation = document["generation"]
    assert (generation["endpoint"], generation["model"], generation["tokens"]) == (url, "m", 16)
    assert document["expert"]["adapter"] == str((own / "adapter").resolve())
    assert before == {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
    assert [path.name for path in tmp_path.iterdir()] == ["served.json"]
    assert key not in done.output + json.dumps(document)
    one = min(asked, key=lambda one: json.dumps(one.body["messages"]))
    assert one[:2] == ("/v1/chat/completions", f"Bearer {key}")
    assert one.body["messages"] == [{"role": "user", "content": "Which number is 0?"}]
    shaped = ("model", "max_tokens", "stop", "temperature")
    assert [one.body[name] for name in shaped] == ["m", 256, ["###"], 0.0]


def test_completions_are_given_the_text_of_training(own: Path) -> None:
    with served(lambda _: said("7###8", "length")) as (url, asked):
        found = evaluated(f"{url}/completions", own, limit=1)
    assert (asked[0].path, asked[0].body["prompt"]) == (
        "/v1/completions",
        "Be brief.\n\n### Instruction:\nWhich number is 4?\n\n### Response:\n",
    )
    (answer,) = found["answers"]
    assert (answer["answer"], answer["stop"]) == ("7", "sequence")
    with pytest.raises(InputError, match="needs the prompt as text"):
        api.evaluate(manifest=trained_in(own).plan.run.manifest, endpoint=f"{url}/completions", model="m", offline=True)


def test_a_manifest_says_how_where_there_is_no_adapter(tmp_path: Path) -> None:
    cases = [case(1, 7, input="CREATE TABLE t (a INT)")]
    manifest = project(tmp_path, cases=cases, system_prompt="Be brief.")
    with served(lambda _: said("7")) as (url, asked):
        args = ["evaluate", "-m", manifest, "--endpoint", url, "--model", "m", "--offline", "--samples", "2", "--json"]
        done = command(*args)
    document = json.loads(done.stdout)
    valid(document, "evaluate")
    assert (document["correct"], document["expert"], document["generation"]["samples"]) == (1, None, 2)
    turn = {"role": "user", "content": "Which number is 1?\n\nCREATE TABLE t (a INT)"}
    assert [one.body["messages"] for one in asked] == [[{"role": "system", "content": "Be brief."}, turn]] * 2
    first, second = (one.body for one in asked)
    assert (first["temperature"], second["seed"]) == (0.8, first["seed"] + 1)


def test_a_large_model_answers_beside_it(own: Path, tmp_path: Path) -> None:
    """Held to nothing, and no stop sequence ends it."""
    with served(lambda _: said("8")) as (url, asked):
        options = {"baseline_endpoint": url, "baseline_model": "large", "offline": True, "output": tmp_path / "e.json"}
        document = api.evaluate(own, **options).as_json()
    valid({"schema_version": 1, "command": "evaluate", **json.loads(json.dumps(document))}, "evaluate")
    assert (document["correct"], document["baseline_endpoint"]["correct"]) == (6, 2)
    assert document["baseline_endpoint"]["generation"]["model"] == "large"
    assert {(one.body["stop"], one.body["max_tokens"]) for one in asked} == {(None, 512)}


def test_answers_are_asked_side_by_side_and_kept_as_they_are_made(own: Path, tmp_path: Path) -> None:
    together, is_well = threading.Barrier(4), False

    def reply(asked: Asked) -> Reply:
        if is_well:
            return said("7")
        together.wait(30)
        is_bad = "7" in asked.body["messages"][0]["content"]
        time.sleep(0 if is_bad else 0.3)  # the fault is known first
        return (404, {"error": "sk-1 may not"}, {}) if is_bad else said("7")

    (tmp_path / "s.answers.jsonl").write_text("the user's own", encoding="utf-8")
    with served(reply) as (url, asked):
        options: dict[str, Any] = {"batch_size": 4, "output": tmp_path / "s.json"}
        with pytest.raises(EnvironmentProblem, match=r'answered 404: {"error": "\*\*\* may not"}'):
            evaluated(url, own, **options)
        is_well = True
        evaluated(url, own, **options, limit=1)  # leaves what another command goes on from
        evaluated(url, own, batch_size=4, output=tmp_path / "s")
        (kept,) = tmp_path.glob(".s.json.*")
        lines = [json.loads(line) for line in filter(None, kept.read_text(encoding="utf-8").splitlines())]
        assert len(lines) == 7
        odd = [12, None, [1], *([*line[:-1], 100] for line in lines)]
        kept.write_text("\n".join(map(json.dumps, odd)), encoding="utf-8")
        before = len(asked)
        found = evaluated(url, own, **options, threshold=0.1)
    assert (found["correct"], len(asked)) == (6, before + 1)
    generation = found["generation"]
    assert (generation["tokens"], generation["seconds"] // 100) == (16, 7), "those of all answers"
    assert generation["tokens_per_s"] == 16 / generation["seconds"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s", "s.answers.jsonl", "s.json"]
    assert (tmp_path / "s.answers.jsonl").read_text(encoding="utf-8") == "the user's own"


def test_it_is_asked_again_where_that_may_help(own: Path) -> None:
    """Also if a reply breaks off."""
    faults = [(429, {}, {"Retry-After": "0"}), (503, {}, {"Retry-After": "0"}), (500, {}, {"Content-Length": "99"})]
    with served(lambda _: faults.pop() if faults else said("7")) as (url, asked):
        assert evaluated(url, own, limit=1)["correct"] == 1
    assert len(asked) == 4
    assert asked[0] == asked[1] == asked[2] == asked[3]


def odd(content: Any = SEVEN, usage: Any = None) -> Reply:
    return 200, {"choices": [{"message": {"content": content}}], "usage": usage}, {}


def test_an_odd_reply_is_read_or_told(own: Path, tmp_path: Path) -> None:
    thought, part = {"type": "thinking", "thinking": []}, {"type": "text", "text": SEVEN}
    with served(lambda _: odd([thought, part, part], {"completion_tokens": "12"})) as (url, _asked):
        found = evaluated(url, own, limit=1)
    assert (found["answers"][0]["answer"], found["generation"]["tokens"]) == ("77", 12)
    replies = [odd(7), odd({"a": 1}), odd([part, {"type": "text"}]), odd(["7"]), odd([7])]
    replies += [odd(usage="2"), *(odd(usage={"completion_tokens": many}) for many in ("two", [2], math.inf))]
    for one in replies:
        told = re.escape(f"answered 200: {json.dumps(one[1])}")
        with served(lambda _, one=one: one) as (url, asked), pytest.raises(EnvironmentProblem, match=told):
            evaluated(url, own, batch_size=1, output=tmp_path / "o.json")
        assert (len(asked), [*tmp_path.iterdir()]) == (1, []), "nothing is kept, and nothing more is asked"


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
def test_ctrl_c_waits_for_no_reply(own: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        words = [
            sys.executable,
            "-m",
            "expert_cli",
            "evaluate",
            "--adapter",
            str(own),
            "--endpoint",
            url,
            "--model",
            "m",
        ]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        asking = silent.accept()[0]
        process.send_signal(signal.SIGINT)
        try:
            told = process.communicate(timeout=60)[1]
        finally:
            process.kill()
            asking.close()
    assert (process.returncode, "error: interrupted\n" in told) == (130, True)


def test_the_key_goes_to_no_other_server(own: Path) -> None:
    with (
        served(lambda _: said("7")) as (other, elsewhere),
        served(lambda _: (302, {}, {"Location": f"{other}/chat/completions"})) as (url, _asked),
    ):
        with pytest.raises(EnvironmentProblem, match="answered 302") as caught:
            evaluated(url, own, limit=1)
        assert "redirects are not followed" in caught.value.hint
    assert elsewhere == []


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GRAMMARS = {
    "json-schema": (
        "",
        {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}},
    ),
    "sql": ("CREATE TABLE boats (id INT)", "TABLE: "),
    "cypher": ("Boat {name}", 'node_0: "("'),
}


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("kind", GRAMMARS)
def test_a_grammar_goes_along_and_a_refusal_is_told_once(
    own: Path, tmp_path: Path, kind: str, *, refuses: bool
) -> None:
    shown, expected = GRAMMARS[kind]

    def reply(asked: Asked) -> Reply:
        is_held = {"response_format", "structured_outputs"} & asked.body.keys()
        return (400, {"error": {"message": "no grammars here"}}, {}) if refuses and is_held else said("7")

    schema = {"json_schema": SCHEMA} if kind == "json-schema" else {}
    manifest = manifest_with(own, use_grammar=True, grammar_type=kind, **schema)
    cases = [{"verifier": "exact", "prompt": f"{n}", "input": shown, "expected": "7"} for n in range(3)]
    file, report = write_rows(tmp_path / "cases.jsonl", [{**one, "id": str(n)} for n, one in enumerate(cases)]), Told()
    with served(reply) as (url, asked):
        found = evaluated(url, own, manifest=manifest, cases=file, against=None, reporter=report)
    assert found["cases"] == 3
    assert sum("does not accept a grammar" in warning for warning in report.warnings) == refuses
    assert len(asked) == (6 if refuses else 3)
    if isinstance(expected, dict):
        assert expected.items() <= asked[0].body.items()
    else:
        assert expected in asked[0].body["structured_outputs"]["grammar"]


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("http://example.org/v1", EnvironmentProblem, "must not be used: --offline is given"),
        ("ftp://127.0.0.1/v1", InputError, "not a server's address"),
        ("http://me:secret@127.0.0.1/v1", InputError, "http://127.0.0.1: not a server's address"),
    ],
)
def test_an_address_that_may_not_be_asked(own: Path, url: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        evaluated(url, own)


def test_the_base_model_may_be_held_as_servers_hold_it(own: Path, tmp_path: Path) -> None:
    before = (own / "evaluation.json").read_bytes()
    output = tmp_path / "e.json"
    found = api.evaluate(own, base_quantization="int4", limit=1, offline=True, output=output).as_json()
    assert found["expert"]["quantization"] == read_json(output)["expert"]["quantization"] == "int4"
    assert (own / "evaluation.json").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("at", ["", "/completions"], ids=["chat", "completions"])
def test_llama_cpp_serves_an_exported_expert(own: Path, tmp_path: Path, at: str) -> None:
    """As text and by chat its answers are the adapter's own; a JSON Schema holds those by chat."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="llama.cpp is not here: pip install xllamacpp")
    export_expert(trained_in(own), tmp_path / "out", [], NullReporter(), merge=False, gguf="f16")
    params = xllamacpp.CommonParams()
    params.model.path = str(next((tmp_path / "out").glob("*.gguf")))
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads, params.use_jinja, params.port = 1024, 2, 1, True, 0
    params.warmup = params.fit_params = False
    server = xllamacpp.Server(params)
    found = evaluated(f"{server.listening_address}/v1{at}", own, against=own / "evaluation.json")
    assert (found["correct"], found["against"]["answers_differ"]) == (6, 0)
    if at:  # its /completions knows no response_format
        return
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    manifest = manifest_with(own, use_grammar=True, grammar_type="json-schema", json_schema=schema)
    held = evaluated(f"{server.listening_address}/v1{at}", own, manifest=manifest, limit=1)
    assert set(json.loads(held["answers"][0]["answer"])) == {"a"}
