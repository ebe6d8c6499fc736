"""The prefix cache and deadlines, as a client sees them."""

import re
import uuid

import openai

from client import CLIENT, MODEL, TOKENS, ask, check, complete, equal, extra, join, raw, refused

# Long enough for whole blocks.
LONG = "The sea is wide and deep, and nobody has seen all of it. " * 12


def cached(salt, **more):
    answer = complete(prompt=LONG, max_tokens=2, **extra(**{"cache_salt": salt, **more}))
    return answer.usage.prompt_tokens_details.cached_tokens


@check
def a_prompt_is_computed_once():
    salt = str(uuid.uuid4())
    equal(cached(salt), 0)
    whole = complete(prompt=LONG, max_tokens=2, **extra(prompt_cache_key=salt)).usage
    hit = whole.prompt_tokens_details.cached_tokens
    assert whole.prompt_tokens // 2 < hit < whole.prompt_tokens, whole
    chunks = list(complete(prompt=LONG, max_tokens=2, stream=True,
                           stream_options={"include_usage": True}, **extra(cache_salt=salt)))
    equal(chunks[-1].usage.prompt_tokens_details.cached_tokens, hit, "streamed:")
    equal(chunks[-1].usage.timing["cached_tokens"], hit, "in the timing:")


@check
def tenants_do_not_share():
    salt = str(uuid.uuid4())
    cached(salt)
    equal(cached(salt + "x"), 0)


@check
def timing_is_told():
    for usage in (ask().usage,
                  join(ask(stream=True, stream_options={"include_usage": True}))[2]):
        timing = usage.timing
        assert timing["queue_ms"] >= 0 and timing["prefill_ms"] > 0 and timing["decode_ms"] > 0
        equal(timing["recomputed_tokens"], 0)


@check
def a_deadline_that_cannot_be_met_is_refused():
    ask()  # the costs of a step are known after the first
    error = refused(openai.RateLimitError, lambda: ask(**extra(deadline_ms=0.001)), "deadline_ms",
                    "deadline_unmeetable")
    assert error.body["predicted_ms"] > error.body["allowed_ms"] == 0.001, error.body
    equal(error.response.headers["x-should-retry"], "false")
    equal(error.response.headers["x-retry-elsewhere"], "true")
    refused(openai.RateLimitError, lambda: ask(extra_headers={"x-ttft-target-ms": "0.001"}),
            "ttft_target_ms", "deadline_unmeetable")


@check
def a_refused_deadline_is_not_tried_again():
    ask()

    def refusals():
        found = re.search(r'^tandem:api_errors_total\{.*code="deadline_unmeetable"\} (\d+)$',
                          raw("GET", "/metrics")[2], re.M)
        return int(found.group(1)) if found else 0

    before = refusals()
    patient = CLIENT.with_options(max_retries=2)
    refused(openai.RateLimitError, lambda: patient.completions.create(
        model=MODEL, prompt="a", **extra(deadline_ms=0.001)))
    equal(refusals() - before, 1, "requests of one call:")


@check
def a_deadline_that_can_be_met_changes_nothing():
    whole = ask()
    hurried = ask(**extra(deadline_ms=600_000, ttft_target_ms=300_000))
    equal(hurried.choices[0].message.content, whole.choices[0].message.content)
    assert hurried.usage.completion_tokens <= TOKENS
