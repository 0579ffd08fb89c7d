"""Completions of prompts and conversations by a language model, streamed or as a whole. Runs in a worker process."""

import queue
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from seq2see.data.tokenizer import Tokenizer
from seq2see.decode.generate import build_requests
from seq2see.decode.request import Request
from seq2see.decode.search import Hypothesis, Search
from seq2see.decode.streaming import TextStream, find_stop
from seq2see.errors import UserError
from seq2see.server.service.scheduler import Job
from seq2see.storage.pipeline import Pipeline

Message = dict[str, Any]


class ContextLengthError(UserError):
    """The prompt does not fit into the context window."""


class Completions:
    """The completions that one request asks for: `n` of each prompt, or of its conversation."""

    def __init__(self, model: Pipeline, message: Message) -> None:
        model.require("decoder", "continues a prompt")
        self.tokenizer = model.tokenizers[1]
        self.streaming, self.with_logprobs = message["stream"], message["logprobs"]
        self.is_chat = "messages" in message
        self.stop = [*message["stop"], *(model.chat_template.stops if self.is_chat else ())]
        self.prompts = self._encode(model, message)
        self._outputs: queue.Queue[tuple[int, Hypothesis | None]] = queue.Queue()  # of a job; None: it is done
        window, longest = model.config.model.max_positions, max(map(len, self.prompts))
        if longest >= window:
            raise ContextLengthError(
                f"This model's maximum context length is {window} tokens. However, your prompt has {longest} tokens. "
                "Please reduce the length of the prompt."
            )
        options = Search(**message["search"], max_new_tokens=message["max_tokens"] or window, window="stop")
        requests = [
            request
            for prompt in self.prompts
            for sample in range(message["n"])
            for request in build_requests(model.network, 0, (), prompt, replace(options, seed=options.seed + sample))
        ]
        self.jobs = [self._job(i, request, options) for i, request in enumerate(requests)]

    def _encode(self, model: Pipeline, message: Message) -> list[list[int]]:
        if self.is_chat:
            return [model.chat_template.prompt(self.tokenizer, [(role, text) for role, text in message["messages"]])]
        for prompt in message["prompts"]:
            if not isinstance(prompt, str) and max(prompt) >= model.config.model.vocab_size:
                raise UserError(f"token {max(prompt)} is not one of the {model.config.model.vocab_size} of this model")
        return [
            self.tokenizer.frame_prompt(self.tokenizer.encode(prompt)) if isinstance(prompt, str) else prompt
            for prompt in message["prompts"]
        ]

    def _job(self, index: int, request: Request, options: Search) -> Job:
        special_tokens = replace(self.tokenizer.framing, prompt=())  # the prompt is complete
        job = Job.of(request, options, special_tokens)
        job.should_stop = self._should_stop if self.stop else None
        if self.streaming:
            job.on_tokens = partial(self._put, index)
        job.future.add_done_callback(lambda _: self._put(index, None))
        return job

    def _put(self, index: int, output: Hypothesis | None) -> None:
        self._outputs.put((index, output))

    def _should_stop(self, tokens: Sequence[int]) -> bool:
        return find_stop(self.tokenizer.decode(tokens, True), self.stop) is not None

    def run(self) -> Iterator[Message]:
        """Yields pieces of the texts while they are generated, if they are streamed, then the result."""
        choices = [Choice(i, self.tokenizer, self.stop, self.is_chat) for i in range(len(self.jobs))]
        remaining, results = len(self.jobs), [Message()] * len(self.jobs)
        while remaining:
            index, output = self._outputs.get()
            done = output is None
            if output is None:
                output = self.jobs[index].future.result()[0]
                remaining -= 1
            piece = choices[index].advance(output, done, self.with_logprobs)
            results[index] = piece
            if self.streaming:
                yield {"piece": piece}
        generated = sum(choice.count for choice in choices)
        choices_shown = [] if self.streaming else results
        yield {"result": {"choices": choices_shown, "tokens": [sum(map(len, self.prompts)), generated]}}


class Choice:
    """The text of one completion as it grows."""

    def __init__(self, index: int, tokenizer: Tokenizer, stop: Sequence[str], is_chat: bool) -> None:
        self.index, self.tokenizer, self.count = index, tokenizer, 0
        self._stream = TextStream(tokenizer, stop, continues=True)
        self._strip = is_chat  # a message does not begin with whitespace

    def advance(self, output: Hypothesis, done: bool, with_logprobs: bool) -> Message:
        """Returns what is new: text, tokens and, at the end, why it ended."""
        text = self._stream.finish(output.tokens) if done else self._stream.advance(output.tokens)
        if self._strip:
            text = text.lstrip()
            self._strip = not text
        tokens = self._describe_tokens(output, self.count) if with_logprobs else []
        self.count = len(output.tokens)
        piece = {"index": self.index, "text": text, "tokens": tokens}
        return {**piece, "finish_reason": "stop" if output.finished else "length"} if done else piece

    def _describe_tokens(self, output: Hypothesis, first: int) -> list[Message]:
        """Returns the text, its place, the log-probability and the alternatives of each token from `first` on."""
        alternatives = output.alternatives or [()] * len(output.tokens)
        offsets = self.tokenizer.token_offsets(output.tokens, True)
        rows = list(zip(output.tokens, offsets, output.logprobs, alternatives, strict=False))[first:]
        return [
            {
                "token": self.tokenizer.decode([token], True),
                "offset": offset,
                "logprob": logprob,
                "top": [[self.tokenizer.decode([id], True), value] for id, value in top],
            }
            for token, offset, logprob, top in rows
        ]
