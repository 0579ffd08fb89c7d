"""How a model learns the built-in corpus in two minutes on two CPU cores."""

TRAINING_PRESET = "tiny"
TRAINING_SETTINGS = [
    "text.tokenizer=word", "text.vocab_size=4000", "text.shared_vocab=false", "model.encoder_layers=2",
    "model.decoder_layers=2", "model.heads=8", "model.feed_forward=512", "model.norm_first=true", "model.dropout=0",
    "train.batch_tokens=600", "train.schedule=cosine", "train.lr=3e-3", "train.warmup_steps=200", "train.beta2=0.95",
    "train.weight_decay=0.3", "train.label_smoothing=0.05", "train.steps=0", "train.patience=0",
    "train.validate_every=1500", "train.validation_sentences=200", "train.average_checkpoints=1", "train.metric=loss",
]  # fmt: skip
