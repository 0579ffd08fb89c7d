"""Trains a GPT-2 of Hugging Face on the tokens of the recipe `books`, and scores it with the same test.

    python recipes/books_peer.py --data DIR --work DIR [--model WORK/language-models/books-1] [--device cuda]

Width, layers, heads, vocabulary, batch, steps and learning rates are those of the model; positions are learned, as in GPT-2.
The result is a Hugging Face directory with our tokenizer, which `seq2see evaluate` opens like any other model.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from language_models import language_model_test
from pairs import read_lines
from recipe import RESULTS
from torch import Tensor

from seq2see.api import load
from seq2see.config import Config
from seq2see.data.tokenizer_training import split_text
from seq2see.storage.bundled import BUNDLED, LANGUAGE_MODEL
from seq2see.train.schedule import learning_rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="directory with the corpora")
    parser.add_argument("--model", type=Path, default=BUNDLED / LANGUAGE_MODEL, help="a model of the recipe `books`")
    parser.add_argument("--work", type=Path, required=True, help="directory for the trained peer")
    parser.add_argument("--steps", type=int, help="by default as many as the model's")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    ours = load(options.model)
    config, start = ours.config, time.perf_counter()
    steps = options.steps or config.train.steps
    text = "\n".join(read_lines(options.data / "lm" / "books-train.txt"))
    tokens = torch.from_numpy(ours.tokenizers[1].encode_batch(list(split_text(text, 1 << 14))).tokens.astype(np.int64))
    peer = train(config, tokens, steps, options.device)
    out = options.work / "books-gpt2"
    peer.float().save_pretrained(out)
    shutil.copyfile(options.model / "tokenizer.json", out / "tokenizer.json")
    minutes = round((time.perf_counter() - start) / 60, 1)
    valid = options.work / "books.valid.txt"
    valid.write_text("\n".join(read_lines(options.data / "lm" / "books-valid.txt")), encoding="utf-8")
    scores = {"valid": language_model_test(valid)(load(out, options.device))}
    result = {
        "recipe": "language-models",
        "run": "books, GPT-2 of Hugging Face",
        "seed": 1,
        "preset": "",
        "settings": [],
        "parameters": sum(p.numel() for p in peer.parameters()),
        "steps": steps,
        "minutes": minutes,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "scores": scores,
        "curve": [],
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "language-models-books-gpt2.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


def train(config: Config, tokens: Tensor, steps: int, device: str) -> transformers.GPT2LMHeadModel:
    """Trains on random windows of the text, with AdamW, clipping, and our schedule of learning rates."""
    m, t = config.model, config.train
    torch.manual_seed(1)
    shape = transformers.GPT2Config(
        vocab_size=m.vocab_size,
        n_positions=m.max_positions,
        n_embd=m.width,
        n_layer=m.decoder_layers,
        n_head=m.heads,
        n_inner=m.feed_forward,
        resid_pdrop=m.dropout,
        embd_pdrop=m.dropout,
        attn_pdrop=0.0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.GPT2LMHeadModel(shape).to(device)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": t.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=t.lr,
        betas=(0.9, 0.95),
        fused=device == "cuda",
    )
    compiled = torch.compile(model) if device == "cuda" else model
    tokens, rows = tokens.to(device), t.batch_tokens // m.max_positions
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(t, m.width, step, step / steps)
        begin = torch.randint(len(tokens) - m.max_positions, (rows, 1), device=device)
        ids = tokens[begin + torch.arange(m.max_positions, device=device)]
        with torch.autocast(device, torch.bfloat16):
            loss = compiled(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 500 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return model.eval()


if __name__ == "__main__":
    main()
