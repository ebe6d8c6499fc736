"""litellm: the SDK's calls to an OpenAI-compatible server, as its proxies and frameworks make them.

How it is run: see interop.py. Needs the package `litellm`; no other network than the server.
"""

import asyncio
import os
import sys

from interop import equal, model_of, need, run_checks, server

need("litellm")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # the package's own copy, not the network's

import litellm  # noqa: E402

QUESTION = [{"role": "user", "content": "Tell me about the sea in a few sentences."}]
TOKENS = 24


class Client:
    def __init__(self, url):
        self.name = model_of(url)
        self.base = {"api_base": url + "/v1", "api_key": "none", "temperature": 0,
                     "max_tokens": TOKENS, "num_retries": 0, "timeout": 240}

    def chat(self, provider="openai", **more):
        return litellm.completion(model=f"{provider}/{self.name}",
                                  **{**self.base, "messages": QUESTION, **more})

    def text(self, **more):
        return litellm.text_completion(model=f"text-completion-openai/{self.name}",
                                       **{**self.base, "prompt": "The sea is", **more})


def content(answer):
    return answer.choices[0].message.content


def chats_answer_and_stream(client):
    whole = client.chat()
    parts = [chunk.choices[0].delta.content or "" for chunk in client.chat(stream=True)]
    assert content(whole)
    equal("".join(parts), content(whole))
    equal(whole.usage.completion_tokens, TOKENS)


def streams_rebuild_with_usage(client):
    chunks = list(client.chat(stream=True, stream_options={"include_usage": True}))
    whole, built = client.chat(), litellm.stream_chunk_builder(chunks, messages=QUESTION)
    equal(content(built), content(whole))
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        equal(getattr(built.usage, field), getattr(whole.usage, field), field)
    equal(built.choices[0].finish_reason, whole.choices[0].finish_reason)


def the_vllm_provider_works(client):
    equal(content(client.chat("hosted_vllm")), content(client.chat()))


def completions_answer_and_stream(client):
    whole = client.text().choices[0].text
    parts = [chunk.choices[0].text or "" for chunk in client.text(stream=True)]
    assert whole
    equal("".join(parts), whole)


def asynchronous_calls_agree(client):
    async def many():
        calls = [litellm.acompletion(model=f"openai/{client.name}", messages=QUESTION,
                                     **client.base) for _ in range(8)]
        return await asyncio.gather(*calls)

    equal({content(answer) for answer in asyncio.run(many())}, {content(client.chat())})


def fields_pass_through(client):
    answer = client.chat(logprobs=True, top_logprobs=2, n=2, seed=1, stop=["\n\n"])
    equal(len(answer.choices), 2)
    assert all(len(token.top_logprobs) == 2 for token in answer.choices[0].logprobs.content)
    long = client.chat(extra_body={"ignore_eos": True, "min_tokens": TOKENS})
    equal(long.usage.completion_tokens, TOKENS)


def errors_have_litellms_classes(client):
    for kind, arguments in ((litellm.BadRequestError, {"temperature": 9}),
                            (litellm.ContextWindowExceededError,
                             {"messages": [{"role": "user", "content": "sea " * 20000}]})):
        try:
            client.chat(**arguments)
        except kind as error:
            # The second is a subclass of the first.
            equal(type(error), kind)
            continue
        raise AssertionError(f"no {kind.__name__}")
    try:
        litellm.completion(model="openai/no-such-model", messages=QUESTION, **client.base)
    except litellm.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


def a_router_calls_it(client):
    router = litellm.Router(num_retries=0, model_list=[
        {"model_name": "sea", "litellm_params": {"model": f"openai/{client.name}", **client.base}}])
    equal(content(router.completion(model="sea", messages=QUESTION)), content(client.chat()))


CHECKS = [chats_answer_and_stream, streams_rebuild_with_usage, the_vllm_provider_works,
          completions_answer_and_stream, asynchronous_calls_agree, fields_pass_through,
          errors_have_litellms_classes, a_router_calls_it]

if __name__ == "__main__":
    with server() as address:
        sys.exit(run_checks(CHECKS, Client(address)))
