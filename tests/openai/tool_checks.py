"""Tools: what the template is given, and the calls that come back."""

import json

from client import BAD, KEY, KEYED, ask, check, equal, join_all, keyed, post, refused, text_of


@check
def tools_need_a_template_with_tools():
    tools = [{"type": "function", "function": {"name": "f"}}]
    refused(BAD, lambda: ask(tools=tools), "tools", "unsupported_value")
    equal(text_of(ask(tools=tools, tool_choice="none")), text_of(ask()))


ADD = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"b": {"type": "integer"}, "a": {"type": "integer"}}}}}


def turn(number, a, b):
    call = {"id": f"call_{number}", "type": "function",
            "function": {"name": "add", "arguments": json.dumps({"a": a, "b": b})}}
    return [{"role": "user", "content": f"What is {a} + {b}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": str(a + b)},
            {"role": "assistant", "content": f"It is {a + b}."}]


# Calls to copy: with these before it even the small default model writes one that can be read.
SUMS = turn(1, 1, 2) + turn(2, 3, 4) + turn(3, 5, 6)
SUMS.append({"role": "user", "content": "What is 7 + 8?"})


def ask_tools(**more):
    arguments = {"model": keyed().models.list().data[0].id, "messages": SUMS, "tools": [ADD],
                 "temperature": 0, "max_tokens": 60}
    arguments.update(more)
    return keyed().chat.completions.create(**arguments)


@check
def tools_and_their_turns_reach_the_template():
    keyed()
    headers = {"Authorization": "Bearer " + KEY}
    status, body = post("/tokenize", {"messages": SUMS, "tools": [ADD]}, KEYED, headers)
    equal(status, 200, body)
    text = post("/detokenize", {"tokens": body["tokens"]}, KEYED, headers)[1]["prompt"]
    assert '"properties": {"b": {"type": "integer"}, "a"' in text, text
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>' in text, text
    assert "<tool_response>\n7\n</tool_response>" in text, text


@check
def a_named_tool_is_called():
    choice = ask_tools(tool_choice={"type": "function", "function": {"name": "add"}}).choices[0]
    equal(choice.finish_reason, "tool_calls", choice)
    call = choice.message.tool_calls[0]
    equal((call.type, call.function.name, choice.message.content), ("function", "add", None))
    json.loads(call.function.arguments)
    assert call.id


@check
def a_required_tool_is_called():
    choice = ask_tools(tool_choice="required").choices[0]
    equal(choice.message.tool_calls[0].function.name, "add", choice)


@check
def calls_are_streamed_in_pieces_that_join():
    for tool_choice in ("required", "auto", {"type": "function", "function": {"name": "add"}}):
        whole = ask_tools(tool_choice=tool_choice).choices[0]
        got = join_all(ask_tools(tool_choice=tool_choice, stream=True))[0][0]
        calls = [[c.function.name, c.function.arguments] for c in whole.message.tool_calls or []]
        equal((got["calls"], got["text"], got["finish"]),
              (calls, whole.message.content or "", whole.finish_reason), tool_choice)


@check
def the_only_call_ends_the_answer():
    more = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 200,
            "extra_body": {"ignore_eos": True}}
    whole = ask_tools(**more)
    choice = whole.choices[0]
    equal((len(choice.message.tool_calls), choice.finish_reason), (1, "tool_calls"))
    assert whole.usage.completion_tokens < 60, whole.usage
    got = join_all(ask_tools(stream=True, **more))[0][0]
    call = choice.message.tool_calls[0].function
    equal((got["calls"], got["finish"]), ([[call.name, call.arguments]], "tool_calls"))


@check
def half_a_call_is_content():
    choice = ask_tools(tool_choice="required", max_tokens=2).choices[0]
    equal((choice.message.tool_calls, choice.finish_reason), (None, "length"))
    assert choice.message.content.startswith("<tool_call>"), choice


@check
def calls_are_words_where_none_is_allowed():
    choice = ask_tools(tool_choice="none").choices[0]
    equal(choice.message.tool_calls, None)


@check
def tools_are_checked():
    function = {"name": "f"}
    for tools, param in (
            ([{"type": "function"}], "tools[0].function"),
            ([{"type": "function", "function": {"name": "a b"}}], "tools[0].function.name"),
            ([{"type": "web_search"}], "tools[0].function"),
            ([{"type": "function", "function": {"name": "f", "strict": True}}],
             "tools[0].function.strict"),
    ):
        refused(BAD, lambda: ask(tools=tools), param)
    tools = [{"type": "function", "function": function}]
    refused(BAD, lambda: ask(tool_choice="required"), "tool_choice")
    refused(BAD, lambda: ask(tools=tools, tool_choice={"type": "function",
                                                       "function": {"name": "g"}}),
            "tool_choice.function.name")
    refused(BAD, lambda: ask(messages=[{"role": "tool", "content": "x"}]),
            "messages[0].tool_call_id")
