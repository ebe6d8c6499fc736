"""The server itself: models, cancelling, keys, pages, what it says of itself."""

import asyncio
import json
import re
import time

import openai

from client import (CLIENT, KEY, KEYED, MODEL, QUESTION, ROOT, TOKENS, ask, check, equal, join,
                    keyed, post, raw, refused, text_of)


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
def a_key_is_needed():
    for key in ("wrong", KEY + "x", KEY[:-1]):
        refused(openai.AuthenticationError, lambda: keyed(key).models.list(),
                code="invalid_api_key")
    for path in ("/v1/models", "/metrics", "/version", "/health/ready", "/openapi.json",
                 "/nothing"):
        equal(raw("GET", path, root=KEYED)[0], 401, path)
    for path in ("/health", "/health/live"):
        equal(raw("GET", path, root=KEYED)[0], 200, path)


@check
def the_right_key_passes():
    assert keyed().models.list().data


@check
def pages_may_use_it():
    keyed()
    status, headers, _ = raw("OPTIONS", "/v1/chat/completions", root=KEYED, headers={
        "Origin": "http://page.example", "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization"})
    equal((status, headers["Access-Control-Allow-Origin"], headers["Access-Control-Allow-Headers"]),
          (204, "http://page.example", "authorization"))
    other = raw("GET", "/health", root=KEYED, headers={"Origin": "http://other.example"})[1]
    equal(other["Access-Control-Allow-Origin"], None)


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
def all_choices_of_a_left_stream_are_cancelled():
    becomes(lambda: running() == 0, 30, "idle before the check")
    stream = ask(stream=True, n=3, **long_arguments())
    next(iter(stream))
    becomes(lambda: running() == 3, 10, "three choices run")
    stream.close()
    becomes(lambda: running() == 0, 5, "cancelled after the client left a stream")


@check
def the_description_has_every_field_and_route():
    document = json.loads(raw("GET", "/openapi.json")[2])
    assert set(document["paths"]) >= {"/v1/chat/completions", "/v1/completions", "/v1/models",
                                      "/tokenize", "/detokenize", "/health", "/metrics"}
    fields = document["components"]["schemas"]["ChatCompletionRequest"]["properties"]
    assert set(fields) >= {"messages", "tools", "top_k", "logit_bias", "stream_options"}
    equal(fields["model"]["enum"][0], MODEL)


@check
def the_tokenizer_is_described():
    info = json.loads(raw("GET", "/tokenizer_info")[2])
    assert info["eos_token"] and info["chat_template"] and info["tokenizer_class"], info
    ids = post("/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False})[1]["tokens"]
    equal(len(ids), 1)
    equal(info["added_tokens_decoder"][str(ids[0])]["content"], info["eos_token"])


@check
def server_describes_itself():
    equal(json.loads(raw("GET", "/health")[2])["status"], "ok")
    equal(raw("GET", "/health/live")[0], 200)
    assert json.loads(raw("GET", "/version")[2])["version"]
    metrics = raw("GET", "/metrics")[2]
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc",
                 "num_preemptions_total", "prompt_tokens_total", "prompt_tokens_cached_total",
                 "prompt_tokens_by_source_total", "generation_tokens_total",
                 "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
                 "e2e_request_latency_seconds_bucket", "request_success_total"):
        assert re.search("^vllm:" + name + r"\{", metrics, re.M), name
