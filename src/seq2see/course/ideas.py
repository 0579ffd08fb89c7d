"""The ideas of the five lecture notes: where the course shows each, which command does it, and where the code is.

`python -m seq2see.course.ideas` prints them as the table of docs/lessons.md. The tests compare the two, and check that every
lesson, section, command and piece of code exists.
"""

from dataclasses import dataclass

E, A, S, L, M = "E", "A", "S", "L", "M"  # see DOCUMENTS
DOCUMENTS = {
    E: "hand-written notes on static and contextual embeddings", A: "hand-written notes on attention and the encoder-decoder",
    S: "slides on self-attention", L: "slides of a lecture, “Lecture 10: Transformer”",
    M: "hand-written notes on language models, “April 19, Transformers”",
}  # fmt: skip


@dataclass(frozen=True)
class Idea:
    topic: str
    text: str
    documents: str  # letters of DOCUMENTS
    lesson: str
    section: str = ""  # its beginning; empty: the first part of the lesson
    command: str = ""  # besides `seq2see lesson`
    code: str = ""  # module:name, relative to seq2see


TOPICS = (
    "Words to numbers", "Similarity", "Directions", "Self-attention without parameters", "Queries, keys, values", "Why √d",
    "Heads", "Positions", "Norms", "Encoder", "Mask", "Cross-attention", "Decoder", "Training", "Decoding", "Before 2017",
    "Patches", "Language models", "Temperature", "Unembedding", "Context changes meaning", "Pictures",
)  # fmt: skip

IDEAS: tuple[Idea, ...] = (
    Idea("Words to numbers", "one-hot vectors", A, "words", "One-hot", "vectors fit", "course.vectors:fit_one_hot"),
    Idea("Words to numbers", "TF-IDF", A, "words", "TF-IDF", "vectors fit", "course.vectors:fit_tf_idf"),
    Idea("Words to numbers", "Word2Vec; king and queen as vectors", A, "words", "King and queen", "vectors nearest",
         "course.vectors:fit_word2vec"),
    Idea("Words to numbers", "a static vector is an average over the data (9k fruit, 1k phone)", A, "words", "",
         "vectors nearest", "course.vectors:fit_word2vec"),
    Idea("Similarity", "dot product, cosine, scaled dot product (cherry, orange, phone)", E, "similarity", "",
         "vectors similarity", "inspect.similarity:similarities"),
    Idea("Similarity", "the table of all words of a document", E, "similarity", "Every word of a document",
         "vectors similarity", "inspect.token_similarity:token_similarity"),
    Idea("Directions", "queen ≈ king + woman − man, with the true rank", M, "directions", "", "vectors analogy",
         "course.vectors:WordVectors.analogy"),
    Idea("Directions", "how plural a word is", M, "directions", "Do the pairs agree", "vectors direction",
         "course.vectors:WordVectors.direction"),
    Idea("Directions", "leaders and countries, also where it fails", M, "directions", "What ≈ hides", "vectors analogy",
         "course.vectors:WordVectors.analogy"),
    Idea("Self-attention without parameters", "a word as a weighted sum of its sentence (apple, orange, phone)", E + A,
         "context", "", "", "course.lessons.attention:attention"),
    Idea("Self-attention without parameters", "weights that add to 1: by their sum and by softmax", E, "context",
         "All weights of", "", "model.attention:attention_reference"),
    Idea("Self-attention without parameters", "why coefficients must be positive: (1x − 1y)/(1 − 1)", E, "context",
         "Why the coefficients", "", "model.attention:attention_reference"),
    Idea("Self-attention without parameters", "money bank, river bank, HDFC bank", A, "context", "Money bank", "",
         "course.lessons.attention:attention"),
    Idea("Queries, keys, values", "a lookup in a guest list (Summeth)", S, "lookup", "", "",
         "model.attention:attention_reference"),
    Idea("Queries, keys, values", "three linear maps; pizza is awesome", A + S, "qkv", "Step by step", "explain",
         "model.layers:SelfAttention"),
    Idea("Queries, keys, values", "512 encoded values need 512 × 512 matrices", S, "qkv", "How large", "model",
         "model.layers:StackedLinear"),
    Idea("Queries, keys, values", "the kernel reading xᵀ W_Q W_Kᵀ x", L, "qkv", "Another reading", "explain",
         "model.layers:SelfAttention"),
    Idea("Queries, keys, values", "row form and column form are the same numbers", L, "qkv", "Rows or columns", "",
         "model.attention:attention_by_columns"),
    Idea("Queries, keys, values", "without learning an idiom is translated word by word (piece of cake)", A, "qkv",
         "Why weights must be learned", "translate", "model.layers:SelfAttention"),
    Idea("Why √d", "the variance of a dot product grows with the dimension", A, "scaling", "Random vectors", "",
         "model.attention:attention_reference"),
    Idea("Why √d", "without the division the softmax saturates", A, "saturation", "The effect", "",
         "inspect.interventions:scale"),
    Idea("Heads", "one attention is one perspective; a text summed up in several ways; fit beside diabetes", E + A, "heads",
         "", "explain", "model.layers:SelfAttention"),
    Idea("Heads", "the man saw the astronomer with a telescope", A, "heads", 'In a model: what does "telescope"', "explain",
         "inspect.attention_flow:attention_weights"),
    Idea("Heads", "it → pizza rather than oven", S, "heads", 'In a model: what does "it"', "explain",
         "inspect.interventions:ablate_head"),
    Idea("Heads", "the creature asks: any adjectives before me?", M, "heads", 'In a model: what does "creature"', "explain",
         "inspect.attention_flow:head_ablation"),
    Idea("Heads", "512 → 8 × 64", A, "heads", "What heads cost", "model", "model.layers:SelfAttention"),
    Idea("Positions", "why a count fails: unbounded, discrete, not relative", A, "positions", "Why not simply count", "",
         "model.positions:sinusoids"),
    Idea("Positions", "one sine repeats, hence many", A, "positions", "Why one sine", "", "model.positions:sinusoids"),
    Idea("Positions", "PE(pos, 2i) and PE(pos, 2i+1); position 0", A + L, "positions", "The formula", "",
         "model.positions:sinusoids"),
    Idea("Positions", "the 50 × 128 heat map", A + L, "positions", "", "", "model.positions:sinusoids"),
    Idea("Positions", "the curves at pos = 2 and pos = 50", L, "positions", "Two positions as curves", "",
         "model.positions:sinusoids"),
    Idea("Positions", "the likeness to binary counting", A + L, "positions", "Like counting", "", "model.positions:sinusoids"),
    Idea("Positions", "Nithish killed lion, lion killed Nithish", A, "order", "", "train", "config:ModelConfig"),
    Idea("Norms", "layer norm against batch norm", A, "norms", "The same table", "", "model.layers:LayerNorm"),
    Idea("Norms", "why padding zeros spoil batch norm", A, "norms", "", "", "data.layout:Packed"),
    Idea("Encoder", "How are You as E, P, X, z, z′; add & norm", A, "encoder", "", "model", "model.layers:Block"),
    Idea("Encoder", "3×512 · 512×2048; each block has its own weights", A, "encoder", "Matrix by matrix", "model",
         "model.layers:Block"),
    Idea("Encoder", "attention is global, feed-forward is local", L, "encoder", "One word is replaced", "explain",
         "inspect.interventions:scale"),
    Idea("Encoder", "the classroom", L, "encoder", "A classroom", "explain", "inspect.interventions:scale"),
    Idea("Encoder", "feed-forward as questions asked of each vector", M, "encoder", "Feed-forward as questions", "explain",
         "model.layers:FeedForward"),
    Idea("Mask", "M(i, j): 0 or −∞", L, "mask", "The mask itself", "explain", "model.attention:attention_mask"),
    Idea("Mask", "the table 0.8, 0.1, 0.1 …", A, "mask", "A table by hand", "", "model.attention:attention_mask"),
    Idea("Mask", "without it training leaks the answer", A, "leak", "", "", "model.layers:SelfAttention"),
    Idea("Cross-attention", "queries from the output, keys and values from the input (ice-cream)", A + L, "cross", "",
         "explain", "model.layers:CrossAttention"),
    Idea("Cross-attention", "self- against cross-attention", A, "cross", "Self-attention and cross-attention", "explain",
         "model.layers:CrossAttention"),
    Idea("Cross-attention", "order and length differ (The European Economic Area)", S, "cross", "The French phrase",
         "evaluate", "inspect.alignment:word_alignment"),
    Idea("Decoder", "shifted right, masked attention, cross-attention, feed-forward, linear, softmax", A + L, "decoder",
         "Every step", "model", "model.transformer:Transformer"),
    Idea("Training", "teacher forcing and the loss (How are you, Congratulations, Thank you …)", A, "decoder",
         "Teacher forcing", "train", "train.loss:cross_entropy"),
    Idea("Training", "all words in parallel, timed", A, "decoder", "All words at once", "train", "train.step:Trainer"),
    Idea("Training", "many examples make “it” and “pizza” more similar; loss and backprop", S + A, "learning", "",
         "train", "train.step:Trainer"),
    Idea("Decoding", "one token at a time, until the end token", E + A, "decoder", "", "translate", "api:Model.stream"),
    Idea("Before 2017", "the recurrent encoder-decoder, which forgets; attention of 2015", A + S, "recurrent", "", "train",
         "course.recurrent.network:Recurrent"),
    Idea("Before 2017", "a recurrent network needs no positions", A, "recurrent", "A recurrent network needs", "train",
         "course.recurrent.network:RecurrentEncoder"),
    Idea("Patches", "tokens are patches of text, picture or sound", M, "patches", "One sentence", "train",
         "data.media.pictures:cut_patches"),
    Idea("Patches", "captioning, speech and pictures as cross-attention", A, "patches", "Which patch each word", "",
         "model.layers:CrossAttention"),
    Idea("Language models", "in training every position predicts its own next", M, "next", "Every position", "train",
         "train.loss:cross_entropy"),
    Idea("Language models", "the context window, sliding; the new token is fed back", M, "window", "", "generate",
         "decode.search:Search"),
    Idea("Language models", "less context, worse prediction", M, "window", "What less context costs", "generate",
         "model.attention:attention_mask"),
    Idea("Language models", "a system prompt, a user's turn, the speaker “Apple:”", M, "window", "A chat is one text", "chat",
         "decode.chat:ChatTemplate"),
    Idea("Language models", "apple, banana, and bread are ???; Harry Potter's professor; the modeler was ???", M, "next",
         "What would a language model say", "generate", "api:Model.generate"),
    Idea("Temperature", "softmax(x / T), sharp and flat", M, "temperature", "All probabilities", "generate",
         "decode.sampling:filter_logits"),
    Idea("Temperature", "its name, from thermodynamics", M, "temperature", "Why it is called", "generate",
         "decode.sampling:filter_logits"),
    Idea("Temperature", "Goldilocks, told at several temperatures", M, "temperature", "*", "generate", "api:Model.generate"),
    Idea("Unembedding", "the matrices W_E and W_U", M, "next", "The two matrices", "model", "model.network:Network"),
    Idea("Unembedding", "the logits 200, −8, 1, 6, −9", M, "next", "Logits by hand", "", "model.network:Network"),
    Idea("Unembedding", "the last vector against every token's vector", M, "next", "", "explain",
         "inspect.logit_lens:alternatives"),
    Idea("Unembedding", "what earlier layers and other positions would predict", M, "layers", "", "explain",
         "inspect.logit_lens:logit_lens"),
    Idea("Context changes meaning", "bank, apple, mole, fit: the same word in several sentences", E + A + M, "senses", "",
         "explain", "inspect.token_similarity:contextual_embeddings"),
    Idea("Pictures", "a figure of every lesson: --out FILE", E + A + S + L + M, "positions", "", "explore",
         "course.lessons.figures:heatmap"),
)  # fmt: skip


def table() -> str:
    """The table of docs/lessons.md."""
    lines = ["| topic | idea | notes | lesson | command | page | code |", "|---|---|---|---|---|---|---|"]
    topic = ""
    for idea in IDEAS:
        section = f", *{idea.section} …*" if idea.section not in ("", "*") else ""
        command = f"`seq2see {idea.command}`" if idea.command else f"`seq2see lesson {idea.lesson}`"
        module, _, name = idea.code.partition(":")
        code = f"`{module.replace('.', '/')}` `{name}`"
        lines.append(
            f"| {idea.topic if idea.topic != topic else ''} | {idea.text} | {idea.documents} | `{idea.lesson}`{section} | "
            f"{command} | `#/learn?lesson={idea.lesson}` | {code} |"
        )
        topic = idea.topic
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
