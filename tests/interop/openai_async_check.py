"""The official `openai` client, asynchronous: many answers at once, streams, tools, cancelling.

How it is run: see interop.py. The synchronous client's checks are tests/openai.
"""

import asyncio
import json
import sys

from interop import equal, model_of, need, run_checks, server

need("openai", "TANDEM_OPENAI_PYTHON")

import openai  # noqa: E402

QUESTION = [{"role": "user", "content": "Tell me about the sea in a few sentences."}]
TOKENS = 24
TOOL = {"type": "function", "function": {
    "name": "get_tide", "description": "Height of the tide",
    "parameters": {"type": "object", "properties": {"harbour": {"type": "string"}}}}}


class Client:
    """An asynchronous client that lives for one event loop."""

    def __init__(self, url):
        self.url = url
        self.model = model_of(url)

    def run(self, scenario):
        async def inside():
            async with openai.AsyncOpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0,
                                          timeout=240) as api:
                return await scenario(api)

        return asyncio.run(inside())

    def fixed(self, **more):
        return {"model": self.model, "temperature": 0, "max_tokens": TOKENS, **more}


async def text_of_stream(stream):
    parts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    return "".join(parts)


def models_are_paged(client):
    async def scenario(api):
        return [model.id async for model in api.models.list()]

    equal(client.run(scenario), [client.model])


def streams_and_answers_agree_among_others(client):
    async def scenario(api):
        alone = await api.chat.completions.create(**client.fixed(messages=QUESTION))

        async def one(index):
            if index % 2:
                answer = await api.chat.completions.create(**client.fixed(messages=QUESTION))
                return answer.choices[0].message.content
            return await text_of_stream(await api.chat.completions.create(
                **client.fixed(messages=QUESTION, stream=True)))

        texts = await asyncio.gather(*[one(index) for index in range(16)])
        equal(set(texts), {alone.choices[0].message.content})

    client.run(scenario)


def usage_ends_a_stream(client):
    async def scenario(api):
        whole = await api.chat.completions.create(**client.fixed(messages=QUESTION))
        chunks = [chunk async for chunk in await api.chat.completions.create(
            **client.fixed(messages=QUESTION, stream=True,
                           stream_options={"include_usage": True}))]
        for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
            equal(getattr(chunks[-1].usage, field), getattr(whole.usage, field), field)

    client.run(scenario)


def completions_and_choices(client):
    async def scenario(api):
        answer = await api.completions.create(
            model=client.model, prompt=["The sea is", "Once"], n=2, temperature=1, seed=5,
            max_tokens=8)
        equal([choice.index for choice in answer.choices], [0, 1, 2, 3])
        parts = [""] * 4
        async for chunk in await api.completions.create(
                model=client.model, prompt=["The sea is", "Once"], n=2, temperature=1, seed=5,
                max_tokens=8, stream=True):
            for choice in chunk.choices:
                parts[choice.index] += choice.text
        equal(parts, [choice.text for choice in answer.choices])

    client.run(scenario)


def the_stream_helper_gathers_events(client):
    async def scenario(api):
        whole = await api.chat.completions.create(**client.fixed(messages=QUESTION))
        async with api.chat.completions.stream(**client.fixed(messages=QUESTION)) as stream:
            kinds = {event.type async for event in stream}
            final = stream.current_completion_snapshot
        assert {"chunk", "content.delta", "content.done"} <= kinds, kinds
        equal(final.choices[0].message.content, whole.choices[0].message.content)
        equal(final.choices[0].finish_reason, whole.choices[0].finish_reason)

    client.run(scenario)


def raw_and_streaming_responses(client):
    async def scenario(api):
        raw = await api.chat.completions.with_raw_response.create(
            **client.fixed(messages=QUESTION))
        parsed = raw.parse()
        equal(raw.headers["content-type"].split(";")[0], "application/json")
        async with api.chat.completions.with_streaming_response.create(
                **client.fixed(messages=QUESTION)) as response:
            body = json.loads(await response.read())
        equal(body["choices"][0]["message"]["content"], parsed.choices[0].message.content)

    client.run(scenario)


def leaving_a_stream_cancels_it(client):
    async def scenario(api):
        stream = await api.chat.completions.create(
            model=client.model, messages=QUESTION, max_tokens=2000, stream=True,
            extra_body={"ignore_eos": True})
        async for _ in stream:
            break
        await stream.close()
        task = asyncio.create_task(api.completions.create(
            model=client.model, prompt="The sea", max_tokens=2000,
            extra_body={"ignore_eos": True}))
        await asyncio.sleep(0.2)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        answer = await api.chat.completions.create(**client.fixed(messages=QUESTION))
        assert answer.choices[0].message.content

    client.run(scenario)


def a_timeout_is_the_clients(client):
    async def scenario(api):
        try:
            await api.with_options(timeout=0.05).completions.create(
                model=client.model, prompt="The sea", max_tokens=2000,
                extra_body={"ignore_eos": True})
        except openai.APITimeoutError:
            return
        raise AssertionError("no timeout")

    client.run(scenario)


def errors_have_their_classes(client):
    async def scenario(api):
        for kind, arguments in ((openai.BadRequestError, {"temperature": 9}),
                                (openai.NotFoundError, {"model": "no-such-model"})):
            try:
                await api.chat.completions.create(
                    **{**client.fixed(messages=QUESTION), **arguments})
            except kind as error:
                equal(error.param, next(iter(arguments)))
                continue
            raise AssertionError(f"no {kind.__name__}")

    client.run(scenario)


def tools_are_refused_by_name_or_taken(client):
    async def scenario(api):
        try:
            answer = await api.chat.completions.create(
                **client.fixed(messages=QUESTION, tools=[TOOL]))
        except openai.BadRequestError as error:
            equal(error.param, "tools")
            return "this model's template has none"
        assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls")
        return "taken"

    return client.run(scenario)


CHECKS = [models_are_paged, streams_and_answers_agree_among_others, usage_ends_a_stream,
          completions_and_choices, the_stream_helper_gathers_events, raw_and_streaming_responses,
          leaving_a_stream_cancels_it, a_timeout_is_the_clients, errors_have_their_classes,
          tools_are_refused_by_name_or_taken]


if __name__ == "__main__":
    with server() as address:
        sys.exit(run_checks(CHECKS, Client(address)))
