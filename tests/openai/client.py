"""What the checks share: the client, requests, streams joined, the list of checks.

Environment: see test_client.py.
"""

import http.client
import json
import os
import urllib.parse

import openai

ROOT = os.environ["TANDEM_BASE_URL"].rstrip("/")
KEYED = os.environ.get("TANDEM_KEYED_URL", "").rstrip("/")
KEY = "test-key"
CLIENT = openai.OpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0, timeout=120)
MODEL = os.environ.get("TANDEM_MODEL") or CLIENT.models.list().data[0].id
QUESTION = [{"role": "user", "content": "Tell me about the sea in a few sentences."}]
PROMPT = "The sea is"
# The longest answer most checks wait for; long enough to hold a stop string, short on two cores.
TOKENS = 24
BAD = openai.BadRequestError

CHECKS = []


class Skipped(Exception):
    pass


def check(function):
    CHECKS.append(function)
    return function


def equal(got, wanted, what=""):
    assert got == wanted, f"{what} got {got!r}, wanted {wanted!r}"


def ask(**more):
    arguments = {"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": TOKENS}
    arguments.update(more)
    return CLIENT.chat.completions.create(**arguments)


def text_of(answer):
    return answer.choices[0].message.content


def counts(usage):
    """What does not depend on what ran before: not the cached tokens, not the timing."""
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def complete(**more):
    arguments = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": TOKENS}
    arguments.update(more)
    return CLIENT.completions.create(**arguments)


def extra(**fields):
    return {"extra_body": fields}


def post(path, body, root=ROOT, headers=None):
    status, _, text = raw("POST", path, json.dumps(body), root, headers)
    return status, json.loads(text)


def tokens_of(text):
    return post("/tokenize", {"prompt": text})[1]["tokens"]


def join_all(chunks):
    """The parts of each choice of a chat's stream by index, and the usage; checks the form."""
    choices, usage, ids = {}, None, set()
    for chunk in chunks:
        ids.add(chunk.id)
        equal(chunk.object, "chat.completion.chunk")
        if not chunk.choices:
            usage = chunk.usage
            continue
        choice = chunk.choices[0]
        to = choices.setdefault(choice.index, {"text": "", "finish": None, "logprobs": [],
                                               "calls": [], "chunks": 0})
        equal(choice.delta.role, None if to["chunks"] else "assistant", "role of a delta:")
        to["chunks"] += 1
        assert to["finish"] is None, "a chunk follows the finish"
        to["text"] += choice.delta.content or ""
        to["finish"] = choice.finish_reason
        if choice.logprobs:
            to["logprobs"] += choice.logprobs.content
        for call in choice.delta.tool_calls or []:
            if call.id:
                equal((call.index, call.type), (len(to["calls"]), "function"))
                to["calls"].append([call.function.name, ""])
            to["calls"][call.index][1] += call.function.arguments or ""
    equal(len(ids), 1, "ids in one stream:")
    return choices, usage


def join(chunks):
    """The text, finish reason and usage of a stream with one choice."""
    choices, usage = join_all(chunks)
    equal(list(choices), [0])
    return choices[0]["text"], choices[0]["finish"], usage


def keyed(key=KEY):
    if not KEYED:
        raise Skipped("no TANDEM_KEYED_URL")
    return openai.OpenAI(base_url=KEYED + "/v1", api_key=key, max_retries=0, timeout=120)


def refused(kind, call, param=None, code=None):
    """`call` must raise `kind` with that param and code; the error is returned."""
    try:
        call()
    except kind as error:
        if param is not None:
            equal(error.param, param, "param:")
        if code is not None:
            equal(error.code, code, "code:")
        assert error.message and error.type, "an error without message or type"
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def raw(method, path, body=None, root=ROOT, headers=None):
    """One request without the client: status, headers, text."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(root).netloc, timeout=60)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, response.headers, text
