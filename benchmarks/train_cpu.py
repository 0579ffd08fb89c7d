"""Training throughput on a CPU: `seq2see train`'s own loop against Hugging Face's Marian under its Seq2SeqTrainer.

3+3 layers, width 256, float32, the same tokens of the same sentences, in one run. Theirs is trained with its default
batches (64 sentences at random, padded) and with group_by_length; ours with batches of as many target tokens. What counts
is real target tokens a second; the contenders take turns, and the ratio is the median over the turns. Ends in one JSON
line. Needs `pip install accelerate`.

    python benchmarks/train_cpu.py --data DIR        # DIR/multi30k/train.{en,de}.xz
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from seq2see.config import Config, DataConfig
from seq2see.model.transformer import Transformer
from seq2see.text.batches import PairBatches
from seq2see.train.loop import Trainer
from seq2see.train.parallel import World
from seq2see.train.prepare_data import Prepared, prepare_translation, with_vocabularies

SENTENCES = 64  # in one of their batches
SETTINGS = [
    "model.width=256", "model.heads=4", "model.encoder_layers=3", "model.decoder_layers=3", "model.feed_forward=1024",
    "model.dropout=0.1", "text.vocabulary=8000", "train.precision=float32", "train.steps=100000",
]  # fmt: skip


def ours(config: Config, data: Prepared) -> Callable[[int], tuple[int, float]]:
    torch.manual_seed(0)
    trainer = Trainer(config, Transformer(config.model), data.batches, World(torch.device("cpu")))
    trainer.step()
    trainer.report()

    def run(steps: int) -> tuple[int, float]:
        before = trainer.state.tokens
        start = time.perf_counter()
        for _ in range(steps):
            trainer.step()
        taken = time.perf_counter() - start
        trainer.report()
        return trainer.state.tokens - before, taken

    return run


class Pairs(torch.utils.data.Dataset[dict[str, list[int]]]):
    def __init__(self, batches: PairBatches) -> None:
        self.source, self.target = batches.source, batches.target

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> dict[str, list[int]]:
        return {"input_ids": self.source[i].tolist(), "labels": self.target[i].tolist()}


def theirs(config: Config, pairs: Pairs, sampling: str, pad: int, start: int) -> Callable[[int], tuple[int, float]]:
    model = config.model

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        def table(name: str, filler: int) -> Tensor:
            rows_of = [torch.tensor(row[name]) for row in rows]
            return torch.nn.utils.rnn.pad_sequence(rows_of, batch_first=True, padding_value=filler)

        source, labels = table("input_ids", pad), table("labels", -100)
        inputs = labels.roll(1, dims=1).masked_fill(labels.roll(1, dims=1) == -100, pad)
        inputs[:, 0] = start
        mask = (source != pad).long()
        return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": inputs, "labels": labels}

    def run(steps: int) -> tuple[int, float]:
        torch.manual_seed(0)
        marian = transformers.MarianMTModel(
            transformers.MarianConfig(
                vocab_size=model.vocabulary, d_model=model.width, encoder_layers=model.encoder_layers,
                decoder_layers=model.decoder_layers, encoder_attention_heads=model.heads,
                decoder_attention_heads=model.heads, encoder_ffn_dim=model.feed_forward,
                decoder_ffn_dim=model.feed_forward, activation_function="relu", dropout=model.dropout,
                scale_embedding=True, pad_token_id=pad, decoder_start_token_id=start, eos_token_id=pad,
                attn_implementation="sdpa",
            )
        )  # fmt: skip
        seen: list[int] = []
        moments: list[float] = []

        class Watch(transformers.TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *arguments: Any, **rest: Any) -> None:
                moments.append(time.perf_counter())

        def counted(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
            seen.append(sum(len(row["labels"]) for row in rows))
            return collate(rows)

        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.Seq2SeqTrainingArguments(
                output_dir=folder, per_device_train_batch_size=SENTENCES, max_steps=steps + 1, report_to=[],
                label_smoothing_factor=0.1, save_strategy="no", logging_strategy="no", disable_tqdm=True,
                train_sampling_strategy=sampling, use_cpu=True, remove_unused_columns=False,
            )  # fmt: skip
            transformers.Seq2SeqTrainer(
                model=marian, args=arguments, train_dataset=pairs, data_collator=counted, callbacks=[Watch()]
            ).train()
        # The first step warms up; the loader may have looked further than was trained.
        return sum(seen[1 : steps + 1]), moments[steps] - moments[0]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with multi30k/train.{en,de}.xz in it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15, help="of each contender in a round")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    english, german = (str(options.data / "multi30k" / f"train.{language}.xz") for language in ("en", "de"))
    with tempfile.TemporaryDirectory() as folder:
        # As many target tokens as 64 sentences have, on average.
        config = Config(data=DataConfig(src=(english,), tgt=(german,))).override(
            [*SETTINGS, f"train.tokens={SENTENCES * 15}"]
        )
        data = prepare_translation(config, Path(folder), None, 29_000, static=False)
        config = with_vocabularies(config, data.tokenizers)
        batches = data.batches(0)
        assert isinstance(batches, PairBatches)
        pairs, words = Pairs(batches), data.tokenizers[1]
        contenders = {"seq2see": ours(config, data)}
        for sampling in ("random", "group_by_length"):
            contenders[f"Marian, {sampling}"] = theirs(config, pairs, sampling, words.pad, words.start)
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, run in contenders.items():
                tokens, seconds = run(options.steps)
                rates[name].append(tokens / seconds)
    result = {}
    for name, found in rates.items():
        ratios = [mine / other for mine, other in zip(rates["seq2see"], found, strict=True)]
        result[name] = {
            "tokens_per_second": round(statistics.median(found)),
            "ratio": round(statistics.median(ratios), 2),
        }
        print(f"{name:28}{statistics.median(found):10,.0f} target tokens/s{statistics.median(ratios):8.2f}")
    about = {"threads": torch.get_num_threads(), "torch": torch.__version__, "transformers": transformers.__version__}
    print(json.dumps({"benchmark": "train_cpu", **about, "results": result}))


if __name__ == "__main__":
    main()
