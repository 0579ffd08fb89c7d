"""Training throughput on a CPU: the training loop of `seq2see train` against Hugging Face's Marian in a Seq2SeqTrainer.

Both train 3+3 layers of width 256 in float32 on the same tokens, in one process. Marian uses the Trainer's default batches
(64 random sentences, padded) and group_by_length; seq2see uses batches with as many target tokens. The metric is target
tokens per second, without padding. The contenders take turns, and the reported ratio is the median over the rounds. The last
line of the output is JSON. Needs `pip install accelerate`.

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
from seq2see.data.batches import PairBatches
from seq2see.model.transformer import Transformer
from seq2see.train.parallel import World
from seq2see.train.prepare_data import TrainingData, prepare_translation, with_vocab_sizes
from seq2see.train.trainer import Trainer

SENTENCES = 64  # per Marian batch
SETTINGS = [
    "model.width=256", "model.heads=4", "model.encoder_layers=3", "model.decoder_layers=3", "model.feed_forward=1024",
    "model.dropout=0.1", "text.vocab_size=8000", "train.precision=float32", "train.steps=100000",
]  # fmt: skip


def seq2see_contender(config: Config, data: TrainingData) -> Callable[[int], tuple[int, float]]:
    torch.manual_seed(0)
    trainer = Trainer(config, Transformer(config.model), data.batches, World(torch.device("cpu")))
    trainer.step()
    trainer.report()

    def run(steps: int) -> tuple[int, float]:
        before = trainer.state.target_tokens
        start = time.perf_counter()
        for _ in range(steps):
            trainer.step()
        seconds = time.perf_counter() - start
        trainer.report()
        return trainer.state.target_tokens - before, seconds

    return run


class Pairs(torch.utils.data.Dataset[dict[str, list[int]]]):
    def __init__(self, batches: PairBatches) -> None:
        self.source, self.target = batches.source, batches.target

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, i: int) -> dict[str, list[int]]:
        return {"input_ids": self.source[i].tolist(), "labels": self.target[i].tolist()}


def marian_contender(
    config: Config, pairs: Pairs, sampling: str, pad: int, start: int
) -> Callable[[int], tuple[int, float]]:
    model = config.model

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        def pad_rows(name: str, padding: int) -> Tensor:
            sequences = [torch.tensor(row[name]) for row in rows]
            return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=padding)

        source, labels = pad_rows("input_ids", pad), pad_rows("labels", -100)
        inputs = labels.roll(1, dims=1).masked_fill(labels.roll(1, dims=1) == -100, pad)
        inputs[:, 0] = start
        mask = (source != pad).long()
        return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": inputs, "labels": labels}

    def run(steps: int) -> tuple[int, float]:
        torch.manual_seed(0)
        marian = transformers.MarianMTModel(
            transformers.MarianConfig(
                vocab_size=model.vocab_size, d_model=model.width, encoder_layers=model.encoder_layers,
                decoder_layers=model.decoder_layers, encoder_attention_heads=model.heads,
                decoder_attention_heads=model.heads, encoder_ffn_dim=model.feed_forward,
                decoder_ffn_dim=model.feed_forward, activation_function="relu", dropout=model.dropout,
                scale_embedding=True, pad_token_id=pad, decoder_start_token_id=start, eos_token_id=pad,
                attn_implementation="sdpa",
            )
        )  # fmt: skip
        target_tokens: list[int] = []
        step_times: list[float] = []

        class StepTimer(transformers.TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *arguments: Any, **rest: Any) -> None:
                step_times.append(time.perf_counter())

        def counting_collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
            target_tokens.append(sum(len(row["labels"]) for row in rows))
            return collate(rows)

        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.Seq2SeqTrainingArguments(
                output_dir=folder, per_device_train_batch_size=SENTENCES, max_steps=steps + 1, report_to=[],
                label_smoothing_factor=0.1, save_strategy="no", logging_strategy="no", disable_tqdm=True,
                train_sampling_strategy=sampling, use_cpu=True, remove_unused_columns=False,
            )  # fmt: skip
            transformers.Seq2SeqTrainer(
                model=marian,
                args=arguments,
                train_dataset=pairs,
                data_collator=counting_collate,
                callbacks=[StepTimer()],
            ).train()
        # The first step is warm-up; the data loader may have prefetched batches beyond the last step.
        return sum(target_tokens[1 : steps + 1]), step_times[steps] - step_times[0]

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory that contains multi30k/train.{en,de}.xz")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--steps", type=int, default=15, help="steps per contender and round")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    english, german = (str(options.data / "multi30k" / f"train.{language}.xz") for language in ("en", "de"))
    with tempfile.TemporaryDirectory() as folder:
        # The average number of target tokens in 64 sentences.
        config = Config(data=DataConfig(src=(english,), tgt=(german,))).override(
            [*SETTINGS, f"train.batch_tokens={SENTENCES * 15}"]
        )
        data = prepare_translation(config, Path(folder), None, 29_000, static=False)
        config = with_vocab_sizes(config, data.tokenizers)
        batches = data.batches
        assert isinstance(batches, PairBatches)
        pairs, tokenizer = Pairs(batches), data.tokenizers[1]
        contenders = {"seq2see": seq2see_contender(config, data)}
        for sampling in ("random", "group_by_length"):
            contenders[f"Marian, {sampling}"] = marian_contender(
                config, pairs, sampling, tokenizer.pad, tokenizer.start
            )
        rates: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(options.rounds):
            for name, run in contenders.items():
                tokens, seconds = run(options.steps)
                rates[name].append(tokens / seconds)
    result = {}
    for name, values in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates["seq2see"], values, strict=True)]
        result[name] = {
            "tokens_per_second": round(statistics.median(values)),
            "ratio": round(statistics.median(ratios), 2),
        }
        print(f"{name:28}{statistics.median(values):10,.0f} target tokens/s{statistics.median(ratios):8.2f}")
    environment = {
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    print(json.dumps({"benchmark": "train_cpu", **environment, "results": result}))


if __name__ == "__main__":
    main()
