"""`seq2see model`: lists the bundled models and the presets, or describes one of them or a model directory."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from seq2see.cli.output import print_facts, print_json
from seq2see.config import Config, ModelConfig, option
from seq2see.errors import UsageError, did_you_mean, terminal
from seq2see.storage.bundled import About, bundled_model, bundled_names, find_model
from seq2see.storage.scores import load_scores, score_texts
from seq2see.train.presets import PRESETS, preset_config

if TYPE_CHECKING:
    from rich.tree import Tree

    from seq2see.model.summary import ModuleSummary
    from seq2see.storage.foreign_model import ForeignModel


def describe(
    name: str | None = option(
        None,
        "A model directory, ours or Hugging Face's, a GGUF file, a bundled model or a preset; without one, lists the "
        "bundled models and the presets.",
        argument=True,
        metavar="DIRECTORY|PRESET",
    ),
    settings: list[str] | None = option(
        None, "Change a setting of a preset, for example model.width=256.", flag="--set", metavar="KEY=VALUE"
    ),
    as_json: bool = option(False, "Print the structure as JSON.", flag="--json"),
    as_toml: bool = option(False, "Print the settings as config.toml.", flag="--toml"),
    traced: bool = option(
        False, "Show the shape, mean and standard deviation of every activation of the untrained model.", flag="--trace"
    ),
    verify: bool = option(False, "Compare every file of a model directory with its recorded hash."),
) -> None:
    """Describe a trained model or a preset: its size, its scores, and every part with its shape.

    Examples:

    seq2see model

    seq2see model books

    seq2see model paper-base --set model.width=256 --set model.heads=4

    seq2see model runs/en-hi --verify
    """
    is_directory = name is not None and name not in PRESETS
    if settings and is_directory:
        raise UsageError(f"--set changes a preset, but {name} is a model directory: leave out --set")
    if verify and not is_directory:
        raise UsageError("--verify needs a model directory: seq2see model DIRECTORY --verify")
    if traced and is_directory:
        raise UsageError(
            f'--trace shows an untrained preset: for the trained {name}, use "seq2see explain" or "explore"'
        )
    if as_json and (as_toml or traced):
        raise UsageError(f"--json cannot be combined with {'--toml' if as_toml else '--trace'}: leave one of them out")
    if name is None:
        _list_models(as_json)
    elif as_toml:
        typer.echo(_config(name, settings or []).to_toml(), nl=False)
    elif is_directory:
        _describe_directory(_directory(name), verify, as_json)
    else:
        _describe_preset(name, _config(name, settings or []).model, as_json, traced)


def _config(name: str, settings: list[str]) -> Config:
    if name in PRESETS:
        return preset_config(name).override(settings)
    from seq2see.storage.directory import load_files

    return load_files(_directory(name)).config


def _describe_preset(name: str, model: ModelConfig, as_json: bool, traced: bool) -> None:
    from seq2see.cli.first_pass import print_first_pass
    from seq2see.model.summary import summarize

    console = terminal()
    if traced:
        print_first_pass(model, name, console)
    elif as_json:
        print_json(asdict(summarize(model, name)))
    else:
        console.print(_tree(summarize(model, name), model.shape))


def _directory(name: str) -> Path:
    """Returns the path of a model directory; the error also suggests a preset."""
    if Path(name).exists() or name in bundled_names():
        return find_model(name)
    hint = did_you_mean(name, [*bundled_names(), *PRESETS])
    raise UsageError(f'"{name}" is neither a model directory nor a bundled model nor a preset: {hint}')


def _describe_directory(path: Path, verify: bool, as_json: bool) -> None:
    from seq2see.model.summary import summarize
    from seq2see.storage.directory import WEIGHTS, load_files, snapshots
    from seq2see.storage.facts import model_facts
    from seq2see.storage.manifest import check_files, verify_files

    files = load_files(path)
    check_files(path, [WEIGHTS])
    verified = verify_files(path) if verify else None
    facts = {"directory": str(path), **model_facts(files.config, files.tokenizers, files.scores)}
    if about := About.load(path):
        facts |= {"languages": " → ".join(about.languages), "limits": about.limits, "data": ", ".join(about.sources)}
    if files.foreign is not None:
        facts |= _foreign_facts(files.foreign)
    listed = sorted(path.iterdir()) if path.is_dir() else [path]
    sizes = {file.name: file.stat().st_size for file in listed if file.is_file()}
    steps = snapshots(path)
    structure = summarize(files.config.model, path.resolve().name)
    if as_json:
        result = {**facts, "files": sizes, "snapshots": steps, "scores": files.scores, "structure": asdict(structure)}
        print_json({**result, "verified_files": verified})
        return

    if steps:
        facts["snapshots"] = f"{len(steps)} of steps {steps[0]:,} to {steps[-1]:,}"
    facts["files"] = "\n".join(f"{size:>13,}  {name}" for name, size in sizes.items())
    if verified is not None:
        facts["verified"] = f"all {verified} files have their recorded sizes and hashes"
    print_facts(facts)
    terminal().print(_tree(structure, files.config.model.shape))


def _foreign_facts(model: "ForeignModel") -> dict[str, str]:
    """Describes another library's model: its family, its options, the memory it takes, and what is not supported."""
    from seq2see.config import ModelConfig
    from seq2see.model.summary import summarize
    from seq2see.storage.chat import ChatTemplate

    defaults = ModelConfig()
    options = {
        name: value
        for name, value in vars(model.config).items()
        if value != getattr(defaults, name) and name not in _SIZES
    }
    options = {name: f"{len(value)} numbers" if isinstance(value, tuple) else value for name, value in options.items()}
    parameters = summarize(model.config, "").parameters
    target = model.tokenizers[1]
    languages = len(target.languages.codes)
    return {
        "family": model.family,
        **model.facts,
        "options": ", ".join(f"{name} = {value}" for name, value in options.items()),
        "context": f"{model.config.max_positions:,} tokens",
        "memory": f"{parameters * 4 / 1e6:,.0f} MB in float32, {parameters * 2 / 1e6:,.0f} MB in bf16",
        **({"languages": f"{languages}, chosen with --source-language and --target-language"} if languages else {}),
        **({"chat": "has a chat template"} if not isinstance(model.chat_template, ChatTemplate) else {}),
        **(
            {"pooling": f"{model.pooling.kind}, {'normalised' if model.pooling.normalize else 'not normalised'}"}
            if model.pooling
            else {}
        ),
    }


_SIZES = (
    "shape", "vocab_size", "source_vocab_size", "width", "heads", "encoder_layers", "decoder_layers", "feed_forward",
    "max_positions", "dropout", "attention_dropout", "activation_dropout",
)  # fmt: skip


@dataclass(frozen=True)
class _BundledModel:
    languages: tuple[str, ...]
    bytes: int
    parameters: int | None
    validation: dict[str, Any]  # from scores.json
    limits: str

    @classmethod
    def load(cls, name: str) -> "_BundledModel":
        folder = bundled_model(name)
        about, scores = About.load(folder), load_scores(folder)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        parameters, validation = scores.get("training", {}).get("parameters"), scores.get("validation", {})
        return cls(about.languages if about else (), size, parameters, validation, about.limits if about else "")

    @property
    def facts(self) -> str:
        facts = [" → ".join(self.languages)] if self.languages else []
        facts += [f"{self.parameters:,} parameters"] if self.parameters else []
        return ", ".join([*facts, f"{self.bytes / 1e6:.1f} MB", *score_texts({"validation": self.validation})])


def _list_models(as_json: bool) -> None:
    bundled = {name: _BundledModel.load(name) for name in bundled_names()}
    if as_json:
        presets = {name: {"reason": p.reason, "model": asdict(p.model)} for name, p in PRESETS.items()}
        models = {name: asdict(model) for name, model in bundled.items()}
        print_json({"bundled": models, "presets": presets})
        return

    from rich.padding import Padding
    from rich.text import Text

    console = terminal()
    console.print("Bundled models, trained; scores on the validation set:\n")
    for name, trained in bundled.items():
        console.print(Text.assemble((name, "bold"), "  ", (trained.facts, "cyan")))
        console.print(Padding(trained.limits, (0, 0, 0, 4)))
    console.print("\nPresets, to train your own:\n")
    for name, p in PRESETS.items():
        model = p.model
        counts = [model.encoder_layers] * model.has_encoder + [model.decoder_layers] * model.has_decoder
        layers = "+".join(map(str, counts))
        heads = f"{model.heads} head{'s' * (model.heads > 1)}"
        sizes = f"{model.shape}, {layers} layers, width {model.width}, {heads}, {model.vocab_size:,} tokens"
        console.print(Text.assemble((name, "bold"), "  ", (sizes, "cyan")))
        console.print(Padding(p.reason, (0, 0, 0, 4)))


def _tree(summary: "ModuleSummary", shape: str) -> "Tree":
    from rich.text import Text
    from rich.tree import Tree

    parameters = (f"{summary.parameters:,}", "bold")
    tree = Tree(Text.assemble((summary.name, "bold"), f", {shape}: ", parameters, " parameters"))
    _add_children(tree, summary)
    return tree


def _add_children(tree: "Tree", summary: "ModuleSummary") -> None:
    from rich.text import Text

    for child in summary.children:
        name, inner = child.name, child
        while len(inner.children) == 1 and not inner.children[0].shape:  # for example a norm in its add & norm
            inner = inner.children[0]
        # A weight and its bias fit on one line.
        single = len(inner.children) <= 2 and all(p.shape for p in inner.children)
        shapes = [p.shape for p in inner.children] if single else [inner.shape]
        text = " + ".join(" × ".join(f"{size:,}" for size in shape) for shape in shapes if shape)
        if child.repeats > 1:
            name = f"{child.repeats} × {name}"
            text = f"{child.parameters // child.repeats:,} each"
        shape = (f"{text}{'  ' * bool(text)}", "cyan")
        branch = tree.add(Text.assemble(f"{name}  ", shape, (f"{child.parameters:,}", "dim")))
        if not single:
            _add_children(branch, child)
