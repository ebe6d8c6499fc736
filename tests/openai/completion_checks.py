"""Completions, scoring of prompts, and tokens."""

from client import (BAD, CLIENT, MODEL, PROMPT, QUESTION, ask, check, complete, counts, equal,
                    extra, join, post, refused, tokens_of)


@check
def completions_answer():
    answer = complete()
    equal((answer.object, answer.model), ("text_completion", MODEL))
    assert answer.id.startswith("cmpl-") and answer.choices[0].text
    equal(answer.usage.prompt_tokens, len(tokens_of(PROMPT)))


@check
def completions_default_to_16_tokens():
    equal(complete(max_tokens=None, **extra(ignore_eos=True)).usage.completion_tokens, 16)


@check
def completions_stream():
    whole = complete()
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    equal("".join(c.choices[0].text for c in chunks if c.choices), whole.choices[0].text)
    equal(counts(chunks[-1].usage), counts(whole.usage))
    equal(chunks[-2].choices[0].finish_reason, whole.choices[0].finish_reason)


@check
def completions_take_token_ids():
    equal(complete(prompt=tokens_of(PROMPT)).choices[0].text, complete().choices[0].text)


@check
def completions_take_lists():
    prompts = [PROMPT, "Once upon a time", "2 + 2 ="]
    alone = [complete(prompt=prompt).choices[0].text for prompt in prompts]
    answer = complete(prompt=prompts)
    equal([choice.text for choice in answer.choices], alone)
    equal([choice.index for choice in answer.choices], [0, 1, 2])
    ids = complete(prompt=[tokens_of(prompt) for prompt in prompts])
    equal([choice.text for choice in ids.choices], alone)


@check
def completions_of_lists_with_n():
    answer = complete(prompt=[PROMPT, "Once"], n=2, temperature=1.0, seed=3, max_tokens=8)
    equal([choice.index for choice in answer.choices], [0, 1, 2, 3])
    equal(answer.choices[0].text,
          complete(temperature=1.0, seed=3, max_tokens=8).choices[0].text)


@check
def completions_logprobs_stand_side_by_side():
    answer = complete(logprobs=3)
    logprobs, text = answer.choices[0].logprobs, answer.choices[0].text
    count = answer.usage.completion_tokens
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        equal(len(getattr(logprobs, name)), count, name)
    for token, offset in zip(logprobs.tokens, logprobs.text_offset):
        assert token.startswith("bytes:") or text[offset:].startswith(token), (token, offset)
    for token, number, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        equal(top[token], number)
        equal(max(top.values()), number)


@check
def echo_puts_the_prompt_before():
    equal(complete(echo=True).choices[0].text, PROMPT + complete().choices[0].text)


@check
def echo_scores_the_prompt():
    answer = complete(echo=True, logprobs=1, max_tokens=1)
    logprobs = answer.choices[0].logprobs
    equal(len(logprobs.tokens), answer.usage.prompt_tokens + 1)
    equal((logprobs.token_logprobs[0], logprobs.top_logprobs[0]), (None, None))
    equal(logprobs.text_offset[:2], [0, len(logprobs.tokens[0])])
    assert all(number <= 0 for number in logprobs.token_logprobs[1:])
    equal("".join(logprobs.tokens), answer.choices[0].text)


@check
def scores_of_a_prompt_are_those_of_writing_it():
    written = complete(logprobs=0, max_tokens=8, **extra(return_token_ids=True)).choices[0]
    ids = tokens_of(PROMPT) + written.token_ids
    scored = complete(prompt=ids, echo=True, logprobs=0, max_tokens=0).choices[0]
    for got, wanted in zip(scored.logprobs.token_logprobs[-8:], written.logprobs.token_logprobs):
        assert abs(got - wanted) < 0.02, (got, wanted)


@check
def scoring_alone_makes_no_token():
    answer = complete(echo=True, logprobs=1, max_tokens=0)
    equal((answer.choices[0].text, answer.choices[0].finish_reason), (PROMPT, "length"))
    equal(answer.usage.completion_tokens, 0)


@check
def streamed_echo_is_the_same():
    whole = complete(echo=True, logprobs=1, prompt=[PROMPT, "Le caf\u00e9 est"]).choices
    text, tokens = {0: "", 1: ""}, {0: [], 1: []}
    for chunk in complete(echo=True, logprobs=1, prompt=[PROMPT, "Le caf\u00e9 est"], stream=True):
        choice = chunk.choices[0]
        text[choice.index] += choice.text
        tokens[choice.index] += choice.logprobs.token_logprobs
    for choice in whole:
        equal(text[choice.index], choice.text)
        equal(tokens[choice.index], choice.logprobs.token_logprobs)


@check
def completions_refuse_by_name():
    for arguments, param in (
            ({"suffix": "x"}, "suffix"),
            ({"best_of": 3}, "best_of"),
            ({"prompt": []}, "prompt"),
            ({"prompt": [1, 10**8]}, "prompt[1]"),
            ({"prompt": [1, "x"]}, "prompt[1]"),
            ({"logprobs": 21}, "logprobs"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": -1}, "max_tokens"),
            (extra(messages=QUESTION), "messages"),
    ):
        refused(BAD, lambda: complete(**arguments), param)


@check
def completions_name_the_prompt_that_is_too_long():
    context = CLIENT.models.retrieve(MODEL).max_model_len
    error = refused(BAD, lambda: complete(prompt=["a", "sea " * (context + 10)]), "prompt[1]",
                    "context_length_exceeded")
    assert str(context) in error.message, error.message


@check
def tokens_round_trip():
    for text in ("The sea", "na\u00efve \U0001F600 \u4f60\u597d", " two  spaces\n\n"):
        body = post("/tokenize", {"prompt": text, "model": MODEL})[1]
        equal(body["count"], len(body["tokens"]))
        equal(post("/detokenize", {"tokens": body["tokens"]})[1]["prompt"], text)


@check
def conversations_are_tokenized():
    body = post("/tokenize", {"messages": QUESTION, "return_token_strs": True})[1]
    equal(body["tokens"], ask(max_tokens=1, **extra(return_token_ids=True)).prompt_token_ids)
    equal(len(body["token_strs"]), body["count"])
    equal(body["max_model_len"], CLIENT.models.retrieve(MODEL).max_model_len)
    shorter = post("/tokenize", {"messages": QUESTION, "add_generation_prompt": False})[1]
    assert shorter["count"] < body["count"]


@check
def characters_over_tokens_are_whole():
    text = "\U0001F600\u4f60"
    ids = tokens_of(text)
    answer = complete(prompt=ids, echo=True, logprobs=0, max_tokens=0)
    equal(answer.choices[0].text, text)
    assert len(ids) > len(text), "no character has several tokens"
    for chunk in ask(stream=True, temperature=1.9, seed=4, max_tokens=60):
        if chunk.choices:
            (chunk.choices[0].delta.content or "").encode()
