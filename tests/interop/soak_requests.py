"""The requests of soak.py: what they send, and what of an answer is compared.

An outcome holds, per choice, the text, the finish reason and the tokens' scores, and the usage; it
is the same whether the answer came whole or in pieces, alone or among others.
"""

import json

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

# Two prefixes that many requests share: of some 50 tokens, and of some 30 for each of DAYS.
DAYS = 12
RULES = ("You are a careful assistant of a small harbour. Ships come and go with the tide; you "
         "know their names, their cargo and their captains. Answer in short sentences, be polite, "
         "and never invent a ship. ")
QUESTIONS = ("Which ship came first?", "What is a tide?", "Tell me about barrels.",
             "Write a list of five words.", "Say hello in French.")
BEGINNINGS = ("The sea is", "Once upon a time", "2 + 2 =", "Le caf\u00e9 est", "\U0001F600 means",
              "def add(a, b):\n")


def counts(usage):
    """What of the usage does not depend on what the server has cached."""
    return usage and {name: usage[name] for name in ("prompt_tokens", "completion_tokens")}


class Request:
    def __init__(self, name, path, body):
        self.name = name
        self.path = path
        self.body = body
        self.alone = None  # its outcome without other requests

    def bytes(self, stream):
        more = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        return json.dumps({**self.body, **more}).encode()

    @staticmethod
    def empty():
        return {"choices": {}, "usage": None}

    def outcome(self, body):
        outcome = self.empty()
        for choice in body["choices"]:
            self._add_choice(outcome, choice, choice.get("message"))
        outcome["usage"] = counts(body["usage"])
        return outcome

    def add(self, outcome, event):
        """One event of a stream."""
        if "error" in event:
            outcome["error"] = event["error"]
            return
        for choice in event["choices"]:
            self._add_choice(outcome, choice, choice.get("delta"))
        outcome["usage"] = counts(event.get("usage")) or outcome["usage"]

    @staticmethod
    def _add_choice(outcome, choice, message):
        to = outcome["choices"].setdefault(choice["index"], {"text": "", "finish": None,
                                                             "scores": []})
        text = choice["text"] if message is None else message.get("content")
        to["text"] += text or ""
        to["finish"] = choice["finish_reason"] or to["finish"]
        logprobs = choice.get("logprobs") or {}
        to["scores"] += logprobs.get("token_logprobs") or [
            token["logprob"] for token in logprobs.get("content") or []]

    def starts(self, part):
        """Whether `part` of a stream is what this request's outcome begins with."""
        return "error" not in part and all(
            self.alone["choices"][index]["text"].startswith(choice["text"])
            for index, choice in part["choices"].items())

    def with_stop(self):
        """This request with a stop string out of the middle of its text; None if it has no text."""
        text = self.alone["choices"][0]["text"]
        if len(text) < 20 or "n" in self.body:
            return None
        stop = text[len(text) // 2:len(text) // 2 + 5]
        return Request(f"{self.name}, stop {stop!r}", self.path,
                       {**self.body, "stop": ["\u0000never", stop]})


def harbour_log(context):
    """The long prefix, shorter where a model's context is small and its tokens are letters."""
    days = max(1, min(DAYS, (context - 400) // 100))
    return " ".join(f"Day {day}: the ship number {day * 7 % 90} came in with {day * 13 % 50} "
                    f"barrels, and left with the evening tide." for day in range(1, days + 1))


def make_requests(model, context, tokens):
    """All requests; `tokens` bounds an answer's length. Greedy, or sampled with a seed."""
    log = harbour_log(context)
    fixed = {"model": model, "temperature": 0, "max_tokens": tokens}
    sampled = {"model": model, "temperature": 0.9, "top_p": 0.9, "max_tokens": tokens}
    for index, question in enumerate(QUESTIONS):
        user = {"role": "user", "content": question}
        for length, system in (("short", RULES), ("long", RULES + log)):
            messages = [{"role": "system", "content": system}, user]
            yield Request(f"{length} chat {index}", CHAT, {**fixed, "messages": messages})
        yield Request(f"chat {index}, n", CHAT, {**sampled, "messages": [user], "n": 3,
                                                 "seed": index, "max_tokens": tokens // 2})
    for index, beginning in enumerate(BEGINNINGS):
        yield Request(f"completion {index}", COMPLETIONS, {**fixed, "prompt": beginning})
        yield Request(f"long completion {index}", COMPLETIONS,
                      {**fixed, "prompt": log + "\n" + beginning, "max_tokens": tokens // 3})
        yield Request(f"sampled completion {index}", COMPLETIONS,
                      {**sampled, "prompt": beginning, "seed": index, "presence_penalty": 0.5})
    yield Request("list of prompts", COMPLETIONS, {**fixed, "prompt": list(BEGINNINGS)})
    yield Request("scores", COMPLETIONS, {**fixed, "prompt": log, "echo": True, "logprobs": 2,
                                          "max_tokens": 1})
    yield Request("chat with scores", CHAT, {
        **fixed, "logprobs": True, "top_logprobs": 2,
        "messages": [{"role": "user", "content": QUESTIONS[0]}]})
    yield Request("one token", COMPLETIONS, {**fixed, "prompt": "A", "max_tokens": 1})


class Malformed:
    """A request that must be refused with `status`; MODEL in its text becomes the model's name."""

    def __init__(self, name, status, body=None, path=CHAT, method="POST", raw=None):
        self.name = name
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.path = path
        self.method = method
        self.raw = raw

    def bytes(self, model):
        if self.raw is not None:
            return self.raw
        body = self.body.replace(b"MODEL", model.encode())
        return (f"{self.method} {self.path} HTTP/1.1\r\nHost: soak\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def _chat(**more):
    return {"model": "MODEL", "messages": [{"role": "user", "content": "Hello"}], **more}


MALFORMED = [
    Malformed("no JSON", 400, b"{not json"),
    Malformed("no UTF-8", 400, b'{"model": "MODEL", "messages": "\xff\xfe"}'),
    Malformed("nested too deep", 400, b"[" * 100000),
    Malformed("no messages", 400, {"model": "MODEL", "messages": []}),
    Malformed("unknown role", 400, {"model": "MODEL",
                                    "messages": [{"role": "pirate", "content": "x"}]}),
    Malformed("wrong type", 400, _chat(max_tokens="many")),
    Malformed("negative tokens", 400, _chat(max_tokens=-1)),
    Malformed("too hot", 400, _chat(temperature=9)),
    Malformed("too many choices", 400, _chat(n=100000)),
    Malformed("too long", 400, {"model": "MODEL", "prompt": "sea " * 20000}, COMPLETIONS),
    Malformed("unknown token", 400, {"model": "MODEL", "prompt": [10**8]}, COMPLETIONS),
    Malformed("unknown model", 404, {**_chat(), "model": "no-such-model"}),
    Malformed("unknown path", 404, _chat(), "/v1/nothing"),
    Malformed("wrong method", 405, b"", method="DELETE"),
    Malformed("no HTTP", 400, raw=b"\x00\x01\x02 garbage\r\n\r\n"),
    Malformed("length is no number", 400,
              raw=b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n"),
    Malformed("body too large", 413,
              raw=b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"),
    Malformed("chunks that are none", 400,
              raw=b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                  b"zz\r\nhello\r\n0\r\n\r\n"),
    Malformed("header too large", 431,
              raw=b"GET /v1/models HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 200000 + b"\r\n\r\n"),
]
