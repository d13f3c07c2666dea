"""Lets an OpenAI-compatible server answer the cases: a served expert, or a large model to compare it with.

urllib is used, because huggingface_hub installs either httpx or httpx2. The key is sent only to the named server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPException
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from expert_cli.config.plan import Plan, TrainedAdapter
from expert_cli.errors import EnvironmentProblem, InputError
from expert_cli.evaluation import evaluate
from expert_cli.evaluation.cases import Answer, Cases, EvalCase
from expert_cli.evaluation.grade import Evaluation, Permissions
from expert_cli.inference.expert_config import GenerationConfig
from expert_cli.runs.metrics import read_json
from expert_cli.utils.object_storage import forbidden_by
from expert_cli.utils.reporter import Reporter
from expert_cli.utils.text import shortened

KEY = "OPENAI_API_KEY"
TRIES, TIMEOUT_S, LONGEST_WAIT_S, MOST_STOPS = 5, 600.0, 60.0, 4


class Server:
    """A server that gets chat messages, or the prompt as text if its address ends in /completions."""

    def __init__(self, url: str, model: str, key: str, report: Reporter, *, offline: bool) -> None:
        """Check the address. Raises InputError for an invalid one, EnvironmentProblem for one that may not be used offline."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise InputError(f"{parts.scheme}://{parts.hostname}: not a server's address", "like http://HOST:PORT/v1")
        is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
        if not is_here and (reason := forbidden_by(asked=offline)):
            raise EnvironmentProblem(f"{url} must not be used: {reason}", "a server on this machine may be")
        path = parts.path.rstrip("/")
        self.takes_text = path.endswith("/completions") and not path.endswith("/chat/completions")
        self._at = parts._replace(path=path if path.endswith("/completions") else f"{path}/chat/completions").geturl()
        self.named, self.report, self._key = {"endpoint": url, "model": model}, report, key
        self._takes_grammars, self.stopped, self._opener = True, Event(), OpenerDirector()
        for handler in (ProxyHandler({} if is_here else None), HTTPHandler(), HTTPSHandler()):  # none redirects
            self._opener.add_handler(handler)

    def said(self, asked: Mapping[str, Any], held: Mapping[str, Any]) -> Answer:
        """Return the answer to a request. held: parameters that enforce a grammar, left out if the server refuses them."""
        code, text = self._reply(json.dumps({**asked, **held}).encode())
        with suppress(ValueError, LookupError, TypeError, AttributeError, OverflowError):  # another form: told below
            found = json.loads(text)
            choice, tokens = found["choices"][0], (found.get("usage") or {}).get("completion_tokens") or 0
            told = (choice["text"] if self.takes_text else choice["message"]["content"]) or ""
            said = told if isinstance(told, str) else "".join([one["text"] for one in told if one["type"] == "text"])
            return Answer(said, "length" if choice.get("finish_reason") == "length" else "end", int(tokens))
        told = shortened(text.replace(self._key, "***") if self._key else text, 300)
        if held and code in (400, 422):
            if self._takes_grammars:
                self._takes_grammars = False
                self.report.warning(f"{self._at} does not accept a grammar; answers come without one: {told}")
            return self.said(asked, {})
        self.stopped.set()  # nothing more is asked
        hint = f"check the address and the key in {KEY}; redirects are not followed"
        raise EnvironmentProblem(f"{self._at} answered {code or 'nothing'}: {told}", hint)

    def _reply(self, body: bytes) -> tuple[int, str]:
        """Return status and text after retries; status 0 and the reason if there is no whole reply."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._key}"} if self._key else {})
        code, text, n, wait_s = 0, "stopped", 0, 0.0
        while n < TRIES and (code in (0, 408, 429) or code >= 500) and not self.stopped.wait(wait_s):
            try:
                with self._opener.open(Request(self._at, body, headers), timeout=TIMEOUT_S) as reply:  # noqa: S310
                    code, after = reply.status, reply.headers.get("Retry-After") or ""
                    text = reply.read().decode(errors="replace") or reply.reason
            except (OSError, HTTPException) as error:
                code, text, after = 0, str(getattr(error, "reason", error)), ""
            n, wait_s = n + 1, min(LONGEST_WAIT_S, int(after) if after.isdecimal() else 2**n)
        return code, text


def evaluate_served(
    server: Server, by: TrainedAdapter | Plan, cases: Cases, how: GenerationConfig, may: Permissions, keep: Path | None
) -> Evaluation:
    """Let a server answer, with prompts as in expert.json, else as in the manifest. keep: as for `evaluate_adapter`."""
    evaluate.check_gradable(cases, server.report, may)
    trained, plan = (by, by.plan) if isinstance(by, TrainedAdapter) else (None, by)
    file, settings = trained.origin.expert_config if trained else None, replace(how, num_beams=1)
    title, asked = f"{server.named['model']} answers", read_json(file) if file else {"input_separator": "\n\n"}
    tokenizer = None
    if server.takes_text:
        from expert_cli.model.tokenizer import load_tokenizer  # imports torch

        if file is None:
            raise InputError("/completions needs the prompt as text, from an adapter's tokenizer", "give --adapter")
        tokenizer = load_tokenizer(file.parent)
    first, separator = "" if file else plan.run.model.system_prompt or "", asked["input_separator"]
    system = [{"role": "system", "content": first}] if first else []
    shape = {"model": server.named["model"], "max_tokens": how.max_new_tokens, "temperature": 0.0}
    shape |= {"stop": [*how.stops[:MOST_STOPS]] or None, **how.sampling()}
    answering = evaluate.Answering(title, cases, settings, server.report, keep, (server.named, system, separator))

    def answer(case: EvalCase) -> None:
        turn, seed = case.turn(separator), evaluate.seed_of(settings, case)
        held = evaluate.held_for(turn, case.case, settings.grammar)
        said: dict[str, Any] = {"messages": [*system, {"role": "user", "content": turn}]}
        if tokenizer is not None:  # servers add the BOS token themselves
            text = tokenizer.hf.apply_chat_template(said["messages"], tokenize=False, add_generation_prompt=True)
            said = {"prompt": str(text).removeprefix(tokenizer.leading_token)}
        seeds = [(seed + k) % (1 << 31) for k in range(settings.samples or 1)]
        answering.add(case, [server.said({**shape, **said, "seed": one}, held.served if held else {}) for one in seeds])

    with server.report.progress(title, len(answering.left), "cases") as bar, ThreadPool(settings.batch_size) as pool:
        try:  # the pool's threads are daemons: no request is waited for at Ctrl-C, but at an error
            for done, _ in enumerate(pool.imap_unordered(answer, answering.left), start=1):
                bar.update(done)
        except BaseException as error:
            server.stopped.set()
            if isinstance(error, Exception):
                pool.close()
                pool.join()
            raise
    known = (trained, trained.origin.base_sha256, asked["template"], separator) if trained and file else None
    return answering.judged(may, **server.named).telling(expert=evaluate.facts_of(*known) if known else None)
