"""lm-eval against /v1/completions: its loglikelihoods are those of the model.

Runs the lm_eval command with the model type local-completions on the tasks of lm_eval_tasks (local
data, no hub), one request at a time, then batched and concurrent, then with the server's own
tokenizer (tokenizer_backend=remote). Compares each loglikelihood
with a computation of its own from scored prompts, and, where the server runs --numerics exact (it
does when this script starts it), with transformers on the same weights in f32.

How it is run: see interop.py. Needs lm-eval[api], and transformers, gguf, torch and accelerate to
make a tokenizer and the oracle from the model file, TANDEM_TEST_MODEL.
"""

import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

from interop import HERE, SKIPPED, equal, model_of, need, post, run_checks, server

need("lm_eval")
for package in ("transformers", "gguf", "torch", "accelerate"):
    need(package)

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TQDM_DISABLE"] = "1"
TASKS = ("harbour_choice", "harbour_text", "harbour_generate")
# Sums of some ten logs; a batch of other rows must not change one, so this is only JSON's digits.
SAME = 1e-4
# f32 in another order of summation.
NEAR_ORACLE = 0.005


class Run:
    """What one run of lm_eval reported: per task the samples, and the results."""

    def __init__(self, folder, url, model, batch=1, concurrent=1, remote=False):
        output = tempfile.mkdtemp(dir=folder)
        tokenizer = "tokenizer_backend=remote" if remote else f"tokenizer={folder}/tokenizer"
        arguments = (f"model={model},base_url={url}/v1/completions,{tokenizer},"
                     f"max_length=2048,num_concurrent={concurrent}")
        subprocess.run([sys.executable, "-m", "lm_eval", "run", "--model", "local-completions",
                        "--model_args", arguments, "--tasks", ",".join(TASKS), "--include_path",
                        f"{folder}/tasks", "--batch_size", str(batch), "--output_path", output,
                        "--log_samples"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.samples = {task: self._samples(output, task) for task in TASKS}
        results, = glob.glob(f"{output}/**/results_*.json", recursive=True)
        with open(results, encoding="utf-8") as file:
            self.results = json.load(file)["results"]

    @staticmethod
    def _samples(output, task):
        path, = glob.glob(f"{output}/**/samples_{task}_*.jsonl", recursive=True)
        with open(path, encoding="utf-8") as file:
            samples = [json.loads(line) for line in file]
        return sorted(samples, key=lambda sample: sample["doc_id"])

    def pairs(self):
        """(context, continuation, loglikelihood, is greedy) of each answer of each question."""
        for sample in self.samples["harbour_choice"]:
            for arguments, answers in zip(sample["arguments"].values(), sample["resps"]):
                value, greedy = answers[0]
                yield (arguments["arg_0"], arguments["arg_1"], float(value),
                       str(greedy) == "True")

    def texts(self):
        """(text, loglikelihood) of each whole text."""
        for sample in self.samples["harbour_text"]:
            value = sample["resps"][0][0]
            yield (sample["doc"]["text"],
                   float(value[0] if isinstance(value, list) else value))


class State:
    def __init__(self, folder, url):
        self.folder = folder
        self.url = url
        self.model = model_of(url)
        self.tokenizer = make_tokenizer(folder)
        self.single = Run(folder, url, self.model)
        self.batched = Run(folder, url, self.model, batch=4, concurrent=3)
        self.remote = Run(folder, url, self.model, remote=True)
        self.exact = "-exact-" in post(url, "/v1/completions", {
            "model": self.model, "prompt": "A", "max_tokens": 1})["system_fingerprint"]

    def ids(self, text):
        return post(self.url, "/tokenize", {"prompt": text, "add_special_tokens": False})["tokens"]

    def split(self, context, continuation):
        """The tokens of both, cut as lm-eval does: spaces at the border go to the continuation."""
        spaces = len(context) - len(context.rstrip())
        if spaces:
            continuation = context[-spaces:] + continuation
            context = context[:-spaces]
        whole, before = self.ids(context + continuation), self.ids(context)
        return whole, len(before)

    def cases(self):
        """(tokens, first scored one, lm-eval's loglikelihood, its is-greedy or None)."""
        for context, continuation, value, greedy in self.single.pairs():
            yield (*self.split(context, continuation), value, greedy)
        first = self.tokenizer.bos_token_id
        for text, value in self.single.texts():
            yield [first, *self.ids(text)], 1, value, None


def make_tokenizer(folder):
    import transformers
    path = os.environ["TANDEM_TEST_MODEL"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(os.path.dirname(path),
                                                           gguf_file=os.path.basename(path))
    tokenizer.save_pretrained(f"{folder}/tokenizer")
    return tokenizer


def copy_tasks(folder):
    """The tasks with the place of their data filled in."""
    shutil.copytree(f"{HERE}/lm_eval_tasks", f"{folder}/tasks")
    for path in glob.glob(f"{folder}/tasks/*.yaml"):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace("FOLDER", f"{folder}/tasks"))


def tokenizers_agree(state):
    count = 0
    for tokens, _, _, _ in state.cases():
        text = state.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        equal(state.tokenizer(text, add_special_tokens=False).input_ids, tokens, repr(text))
        count += 1
    return f"{count} texts"


def batches_change_nothing(state):
    equal(list(state.batched.pairs()), list(state.single.pairs()))
    equal(list(state.batched.texts()), list(state.single.texts()))
    equal([sample["resps"] for sample in state.batched.samples["harbour_generate"]],
          [sample["resps"] for sample in state.single.samples["harbour_generate"]])


def the_servers_tokenizer_is_as_good(state):
    equal(list(state.remote.pairs()), list(state.single.pairs()))
    equal(list(state.remote.texts()), list(state.single.texts()))
    equal([sample["resps"] for sample in state.remote.samples["harbour_generate"]],
          [sample["resps"] for sample in state.single.samples["harbour_generate"]])


def loglikelihoods_are_those_of_scored_prompts(state):
    worst = 0
    for tokens, first, value, greedy in state.cases():
        scores = post(state.url, "/v1/completions", {
            "model": state.model, "prompt": tokens, "echo": True, "logprobs": 1,
            "max_tokens": 0})["choices"][0]["logprobs"]
        direct = sum(scores["token_logprobs"][first:])
        worst = max(worst, abs(direct - value))
        if greedy is not None:
            tops = scores["top_logprobs"][first:]
            equal(greedy, all(score == max(top.values()) for score, top in
                              zip(scores["token_logprobs"][first:], tops)), repr(tokens))
    assert worst < SAME, worst
    return f"largest difference {worst:.2g}"


def loglikelihoods_are_those_of_the_oracle(state):
    if not state.exact:
        return "not compared: the server does not run --numerics exact"
    import torch
    import transformers
    transformers.utils.logging.disable_progress_bar()
    path = os.environ["TANDEM_TEST_MODEL"]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32).eval()
    worst, count = 0, 0
    for tokens, first, value, greedy in state.cases():
        with torch.no_grad():
            logs = torch.log_softmax(model(torch.tensor([tokens])).logits[0].double(), -1)
        rows = logs[first - 1:-1]
        wanted = torch.tensor(tokens[first:])
        worst = max(worst, abs(rows.gather(1, wanted[:, None]).sum().item() - value))
        if greedy is not None:
            equal(greedy, bool((rows.argmax(-1) == wanted).all()), repr(tokens))
        count += 1
    assert worst < NEAR_ORACLE, worst
    return f"{count} loglikelihoods, largest difference {worst:.2g}"


def answers_end_at_their_stop_strings(state):
    for sample in state.single.samples["harbour_generate"]:
        text = sample["resps"][0][0]
        assert text and "." not in text and "\n" not in text, repr(text)


def metrics_are_finite(state):
    accuracy = state.single.results["harbour_choice"]["acc,none"]
    perplexity = state.single.results["harbour_text"]["byte_perplexity,none"]
    assert 0 <= accuracy <= 1 and math.isfinite(perplexity) and perplexity > 1
    return f"accuracy {accuracy:.3f}, byte perplexity {perplexity:.4f}"


CHECKS = [tokenizers_agree, batches_change_nothing, the_servers_tokenizer_is_as_good,
          loglikelihoods_are_those_of_scored_prompts, loglikelihoods_are_those_of_the_oracle,
          answers_end_at_their_stop_strings, metrics_are_finite]


def main():
    if "TANDEM_TEST_MODEL" not in os.environ:
        print("skipped: TANDEM_TEST_MODEL names no model file")
        return SKIPPED
    with tempfile.TemporaryDirectory() as folder, server("--numerics", "exact") as url:
        copy_tasks(folder)
        try:
            state = State(folder, url)
        except subprocess.CalledProcessError as error:
            print(f"FAIL lm_eval ended with {error.returncode}:\n{error.stderr[-6000:]}")
            return 1
        return run_checks(CHECKS, state)


if __name__ == "__main__":
    sys.exit(main())
