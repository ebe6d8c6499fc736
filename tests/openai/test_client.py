"""What users of the official `openai` client see: checks against a running server.

Environment: TANDEM_BASE_URL (http://127.0.0.1:PORT), TANDEM_MODEL (a served name; default: the first listed).
Needs the package `openai`. Prints each check; exits 1 if one failed.
The checks ask nothing of the model's wit: they compare answers of the same server with each other.
"""

import asyncio
import http.client
import json
import os
import re
import sys
import time
import traceback
import urllib.parse

import openai

ROOT = os.environ["TANDEM_BASE_URL"].rstrip("/")
CLIENT = openai.OpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0, timeout=120)
MODEL = os.environ.get("TANDEM_MODEL") or CLIENT.models.list().data[0].id
QUESTION = [{"role": "user", "content": "Tell me about the sea in a few sentences."}]
# The longest answer most checks wait for; long enough to hold a stop string, short on two cores.
TOKENS = 24

CHECKS = []


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


def join(chunks):
    """The text, finish reason, usage and checked form of a stream."""
    text, finish, usage, first, ids = "", None, None, True, set()
    for chunk in chunks:
        ids.add(chunk.id)
        equal(chunk.object, "chat.completion.chunk")
        if not chunk.choices:
            usage = chunk.usage
            continue
        choice = chunk.choices[0]
        equal(choice.delta.role, "assistant" if first else None, "role of a delta:")
        first = False
        assert finish is None, "a chunk follows the finish"
        text += choice.delta.content or ""
        finish = choice.finish_reason
    equal(len(ids), 1, "ids in one stream:")
    return text, finish, usage


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


def raw(method, path, body=None):
    """One request without the client: status, content type, text."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(ROOT).netloc, timeout=60)
    connection.request(method, path, body)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, response.getheader("content-type"), text


def running():
    text = raw("GET", "/metrics")[2]
    return int(float(re.search(r"^vllm:num_requests_running\{[^}]*\} (\S+)$", text, re.M).group(1)))


def becomes(condition, seconds, what):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what}")


@check
def models_are_listed_and_retrieved():
    ids = [model.id for model in CLIENT.models.list()]
    assert MODEL in ids, ids
    model = CLIENT.models.retrieve(MODEL)
    equal((model.id, model.object), (MODEL, "model"))
    refused(openai.NotFoundError, lambda: CLIENT.models.retrieve("no-such-model"), "model",
            "model_not_found")


@check
def chat_answers_in_one_object():
    answer = ask()
    equal(answer.object, "chat.completion")
    equal(answer.model, MODEL)
    assert answer.id.startswith("chatcmpl-") and answer.system_fingerprint
    assert abs(answer.created - time.time()) < 60
    equal(len(answer.choices), 1)
    equal(answer.choices[0].message.role, "assistant")
    assert answer.choices[0].finish_reason in ("stop", "length")
    usage = answer.usage
    assert usage.prompt_tokens > 0 and 0 < usage.completion_tokens <= TOKENS
    equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
    assert answer.id != ask(max_tokens=1).id


@check
def max_tokens_ends_with_length():
    for name in ("max_tokens", "max_completion_tokens"):
        answer = ask(**{"max_tokens": None, name: 2})
        ending = (answer.choices[0].finish_reason, answer.usage.completion_tokens)
        equal(ending, ("length", 2), name)


@check
def stream_equals_whole_answer():
    whole = ask()
    text, finish, usage = join(ask(stream=True, stream_options={"include_usage": True}))
    equal(text, text_of(whole))
    equal(finish, whole.choices[0].finish_reason)
    equal(usage, whole.usage)
    equal(join(ask(stream=True))[2], None, "usage that was not asked for:")


@check
def stream_ends_with_done():
    body = {"model": MODEL, "messages": QUESTION, "max_tokens": 3, "stream": True}
    _, content_type, text = raw("POST", "/v1/chat/completions", json.dumps(body))
    assert content_type.startswith("text/event-stream"), content_type
    assert text.endswith("data: [DONE]\n\n"), text[-80:]


@check
def seed_repeats():
    def sample(seed):
        return text_of(ask(temperature=1.0, seed=seed))

    equal(sample(7), sample(7))
    equal(sample(-(2**63)), sample(-(2**63)))
    assert len({sample(seed) for seed in range(4)}) > 1, "four seeds, one answer"


@check
def greedy_repeats_among_others():
    async def many():
        async with openai.AsyncOpenAI(base_url=ROOT + "/v1", api_key="none", max_retries=0,
                                      timeout=240) as client:
            async def one(index):
                if index % 2:
                    answer = await client.chat.completions.create(
                        model=MODEL, messages=QUESTION, temperature=0, max_tokens=TOKENS)
                    return text_of(answer)
                stream = await client.chat.completions.create(
                    model=MODEL, messages=QUESTION, temperature=0, max_tokens=TOKENS, stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            return await asyncio.gather(*[one(index) for index in range(8)])

    equal(set(asyncio.run(many())), {text_of(ask())})


@check
def stop_strings_are_cut_exactly():
    text = text_of(ask())
    for stop in (text[len(text) // 2:][:3], text[5:6], text[len(text) // 3:][:12]):
        expected = text[:text.index(stop)]
        for answer in (ask(stop=stop), ask(stop=["\x00never", stop])):
            ending = (text_of(answer), answer.choices[0].finish_reason)
            equal(ending, (expected, "stop"), repr(stop))
        equal(join(ask(stop=stop, stream=True))[:2], (expected, "stop"), repr(stop))


@check
def content_parts_are_text():
    parts = [{"role": "user", "content": [{"type": "text", "text": QUESTION[0]["content"]}]}]
    equal(text_of(ask(messages=parts)), text_of(ask()))
    answer = ask(messages=[{"role": "developer", "content": "Be brief."}] + QUESTION)
    system = ask(messages=[{"role": "system", "content": "Be brief."}] + QUESTION)
    equal(text_of(answer), text_of(system))


@check
def null_is_absent():
    names = ("stop", "seed", "top_p", "n", "stream", "stream_options", "tools", "tool_choice",
             "logprobs", "response_format", "logit_bias", "frequency_penalty", "presence_penalty",
             "user", "metadata")
    equal(text_of(ask(extra_body={name: None for name in names})), text_of(ask()))


@check
def bad_requests_name_the_field():
    bad = openai.BadRequestError
    for arguments, param in (
            ({"temperature": 2.5}, "temperature"),
            ({"temperature": -1}, "temperature"),
            ({"top_p": 1.5}, "top_p"),
            ({"top_p": 0}, "top_p"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": "9"}, "max_tokens"),
            ({"seed": 1.5}, "seed"),
            ({"n": 2}, "n"),
            ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
            ({"messages": QUESTION + [{"role": "user"}]}, "messages[1].content"),
            ({"logprobs": True}, "logprobs"),
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"frequency_penalty": 0.5}, "frequency_penalty"),
            ({"extra_body": {"temprature": 1}}, "temprature"),
    ):
        refused(bad, lambda: ask(**arguments), param)
        refused(bad, lambda: list(ask(stream=True, **arguments)), param)
    error = refused(bad, lambda: ask(extra_body={"temprature": 1}), code="unknown_parameter")
    assert "'temperature'" in error.message, error.message
    refused(openai.NotFoundError, lambda: ask(model="no-such-model"), "model", "model_not_found")


@check
def long_prompts_are_refused_with_numbers():
    context = CLIENT.models.retrieve(MODEL).max_model_len
    long = [{"role": "user", "content": "sea " * (context + 10)}]
    error = refused(openai.BadRequestError, lambda: ask(messages=long), "messages",
                    "context_length_exceeded")
    assert str(context) in error.message, error.message
    refused(openai.BadRequestError, lambda: ask(max_tokens=context), "messages",
            "context_length_exceeded")


@check
def broken_bodies_are_400():
    for body in (b"", b"{", b"[]", b'{"model": "\xff"}', b"[" * 100000, b'{"temperature": NaN}',
                 b'{"temperature": 1e999}'):
        status, _, text = raw("POST", "/v1/chat/completions", body)
        equal(status, 400, body[:20])
        equal(set(json.loads(text)["error"]), {"message", "type", "param", "code"})
    equal(raw("GET", "/v1/chat/completions")[0], 405)
    equal(raw("GET", "/v1/nothing")[0], 404)
    equal(raw("POST", "/v1/chat/completions", b" " * (9 << 20))[0], 413)


def long_arguments():
    """Of a request that runs for a while: nearly all of the context."""
    context = CLIENT.models.retrieve(MODEL).max_model_len
    return {"max_tokens": context // 2, "temperature": 1.5, "seed": 3,
            "messages": [{"role": "user", "content": "Write a very long story. Do not stop."}]}


@check
def leaving_a_stream_cancels():
    becomes(lambda: running() == 0, 30, "idle before the check")
    stream = ask(stream=True, **long_arguments())
    next(iter(stream))
    equal(running(), 1, "running:")
    stream.close()
    becomes(lambda: running() == 0, 5, "cancelled after the client left a stream")


@check
def leaving_a_whole_answer_cancels():
    becomes(lambda: running() == 0, 30, "idle before the check")
    impatient = CLIENT.with_options(timeout=0.3)
    try:
        impatient.chat.completions.create(model=MODEL, **long_arguments())
    except openai.APITimeoutError:
        pass
    becomes(lambda: running() == 0, 5, "cancelled after the client gave up")


@check
def server_describes_itself():
    equal(json.loads(raw("GET", "/health")[2])["status"], "ok")
    equal(raw("GET", "/health/live")[0], 200)
    assert json.loads(raw("GET", "/version")[2])["version"]
    metrics = raw("GET", "/metrics")[2]
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total",
                 "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
                 "e2e_request_latency_seconds_bucket", "request_success_total"):
        assert re.search("^vllm:" + name + r"\{", metrics, re.M), name


def main():
    failed = 0
    for function in CHECKS:
        start = time.monotonic()
        try:
            function()
            verdict = "ok  "
        except Exception:
            failed += 1
            verdict = "FAIL"
            traceback.print_exc()
        print(f"{verdict} {function.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(CHECKS) - failed} of {len(CHECKS)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
