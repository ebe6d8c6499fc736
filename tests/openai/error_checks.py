"""Errors: each with its status, code and the field it is about."""

import json

import openai

from client import (BAD, CLIENT, MODEL, QUESTION, TOKENS, ask, check, complete, equal, extra, raw,
                    refused, text_of)


@check
def bad_values_name_the_field():
    for arguments, param in (
            ({"temperature": 2.5}, "temperature"),
            ({"temperature": -1}, "temperature"),
            ({"top_p": 1.5}, "top_p"),
            ({"top_p": 0}, "top_p"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_completion_tokens": -1, "max_tokens": None}, "max_completion_tokens"),
            ({"n": 0}, "n"),
            ({"n": 129}, "n"),
            ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
            ({"frequency_penalty": 2.5}, "frequency_penalty"),
            ({"presence_penalty": -3}, "presence_penalty"),
            ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"logit_bias": {"x": 1}}, "logit_bias"),
            ({"logit_bias": {"5": 101}}, "logit_bias.5"),
            ({"logit_bias": {"99999999": 1}}, "logit_bias"),
            (extra(top_k=-2), "top_k"),
            (extra(min_p=1.5), "min_p"),
            (extra(repetition_penalty=0), "repetition_penalty"),
            (extra(min_tokens=TOKENS + 1), "min_tokens"),
            (extra(stop_token_ids=[10**8]), "stop_token_ids[0]"),
            ({"stream_options": {"include_usage": True}}, "stream_options"),
    ):
        refused(BAD, lambda: ask(**arguments), param, "invalid_value")
        if "stream_options" not in arguments:
            refused(BAD, lambda: list(ask(stream=True, **arguments)), param, "invalid_value")


@check
def bad_types_name_the_field():
    for arguments, param in (
            ({"max_tokens": "9"}, "max_tokens"),
            ({"temperature": "hot"}, "temperature"),
            ({"seed": 1.5}, "seed"),
            ({"stop": 5}, "stop"),
            ({"stream": "yes"}, "stream"),
            ({"logprobs": 2}, "logprobs"),
            ({"logit_bias": [1]}, "logit_bias"),
            (extra(tools={}), "tools"),
            (extra(chat_template_kwargs=[]), "chat_template_kwargs"),
    ):
        refused(BAD, lambda: ask(**arguments), param, "invalid_type")


@check
def bad_messages_are_named():
    for messages, param in (
            ([], "messages"),
            ([{"role": "robot", "content": "x"}], "messages[0].role"),
            (QUESTION + [{"role": "user"}], "messages[1].content"),
            ([{"role": "user", "content": None}], "messages[0].content"),
            ([{"role": "user", "content": 5}], "messages[0].content"),
            ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
             "messages[0].content[0].type"),
            ([{"content": "x"}], "messages[0].role"),
    ):
        refused(BAD, lambda: ask(messages=messages), param)


@check
def what_is_not_built_is_refused_by_name():
    for arguments, param in (
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"functions": [{"name": "f"}]}, "functions"),
            ({"modalities": ["audio"]}, "modalities"),
            (extra(guided_json={}), "guided_json"),
            (extra(use_beam_search=True), "use_beam_search"),
    ):
        refused(BAD, lambda: ask(**arguments), param, "unsupported_parameter")
    equal(text_of(ask(response_format={"type": "text"})), text_of(ask()))


@check
def unknown_fields_are_refused_with_the_nearest_name():
    error = refused(BAD, lambda: ask(**extra(temprature=1)), "temprature", "unknown_parameter")
    assert "'temperature'" in error.message, error.message


@check
def unknown_models_are_not_found():
    for call in (ask, complete):
        refused(openai.NotFoundError, lambda: call(model="no-such-model"), "model",
                "model_not_found")


@check
def form_data_is_refused():
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    status, _, text = raw("POST", "/v1/completions", "prompt=x", headers=form)
    equal((status, json.loads(text)["error"]["code"]), (415, "unsupported_media_type"))


@check
def methods_are_named():
    for path, allowed in (("/v1/chat/completions", "POST"), ("/v1/completions", "POST"),
                          ("/tokenize", "POST")):
        status, headers, _ = raw("GET", path)
        equal(status, 405, path)
        assert allowed in headers["Allow"]
    equal(raw("DELETE", "/v1/models")[0], 405)


@check
def long_prompts_are_refused_with_numbers():
    context = CLIENT.models.retrieve(MODEL).max_model_len
    long = [{"role": "user", "content": "sea " * (context + 10)}]
    error = refused(BAD, lambda: ask(messages=long), "messages",
                    "context_length_exceeded")
    assert str(context) in error.message, error.message
    refused(BAD, lambda: ask(max_tokens=context), "messages",
            "context_length_exceeded")


@check
def broken_bodies_are_400():
    for body in (b"", b"{", b"[]", b'{"model": "\xff"}', b"[" * 100000, b'{"temperature": NaN}',
                 b'{"temperature": 1e999}'):
        status, _, text = raw("POST", "/v1/chat/completions", body)
        equal(status, 400, body[:20])
        equal(set(json.loads(text)["error"]), {"message", "type", "param", "code"})
    equal(raw("GET", "/v1/nothing")[0], 404)
    equal(raw("POST", "/v1/chat/completions", b" " * (9 << 20))[0], 413)
