"""Where the vectors of the Space view are drawn: on principal axes, or as placed by t-SNE."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from seq2see.api import Model
from seq2see.inspect.embedding_space import EmbeddingSpace, Stack, WordArithmetic, layer_names, token_paths
from seq2see.inspect.explain import Explanation, token_labels
from seq2see.inspect.similarity import principal_axes, tsne
from seq2see.server.explore import requests
from seq2see.server.explore.responses import ResponseModel
from seq2see.server.http.errors import ApiError
from seq2see.server.http.workers import Deadline

MAX_WORDS = 2000  # of the vocabulary that are shown
MAX_FITTED = 1000  # vectors that the axes are fitted to
AXES = 3
DECIMALS = 4  # of a coordinate; the points lie on a unit sphere


Point = tuple[float, float, float]


class Neighbor(ResponseModel):
    id: int
    token: str
    cosine: float = Field(description="Of the vectors as seen from the mean embedding.")


class PlacedNeighbor(Neighbor):
    point: Point | None = Field(description="Null under t-SNE if the token is not among those shown.")


class PlacedTerm(ResponseModel):
    word: str
    sign: Literal[1, -1]
    ids: list[int] = Field(description="Its tokens, whose mean embedding is used.")
    point: Point | None


class PlacedArithmetic(ResponseModel):
    """The sum of the words' unit vectors, and the embeddings nearest to it, without those of the words."""

    terms: list[PlacedTerm]
    point: Point | None
    neighbors: list[PlacedNeighbor]


class PlacedToken(ResponseModel):
    """A token of a trace, and its points from the embedding to the last layer."""

    trace: str
    position: int
    id: int
    text: str
    path: list[Point] = Field(description="One point per layer; empty under t-SNE.")


class Space(ResponseModel):
    """Embeddings and contextual vectors, projected on three axes or placed by t-SNE.

    All vectors are unit vectors from the mean embedding, so that near points have a large cosine.
    """

    methods: list[Literal["pca", "tsne"]] = Field(description="Those that this server can compute.")
    variance_ratios: list[float] = Field(description="The share of the variance on each axis; empty under t-SNE.")
    vocabulary_size: int
    ids: list[int] = Field(description="The tokens shown: the first that contain a letter or digit.")
    tokens: list[str]
    points: list[Point]
    layers: list[str] = Field(description="The tensors of a trace along a path.")
    paths: list[PlacedToken]
    arithmetic: PlacedArithmetic | None = Field(description="Null without words.")


class NearestAtLayer(ResponseModel):
    layer: str
    cosine: float = Field(description="With the token's own embedding.")
    neighbors: list[Neighbor]


class NearestEmbeddings(ResponseModel):
    """The embeddings nearest to one token's vector, layer by layer."""

    token: str
    layers: list[NearestAtLayer]


@dataclass(frozen=True)
class _Projection:
    ids: list[int]  # of the vocabulary
    points: list[Point]
    ratios: list[float]
    project: Callable[[Tensor], list[Point]] | None  # of any vectors [n, width]; None under t-SNE

    def vectors(self, vectors: Tensor) -> list[Point]:
        return self.project(vectors) if self.project else []

    def vector(self, vector: Tensor) -> Point | None:
        return next(iter(self.vectors(vector[None])), None)

    def token(self, ids: Sequence[int], vector: Tensor) -> Point | None:
        """The point of one token, or of a word of several."""
        if self.project is None:
            return dict(zip(self.ids, self.points, strict=True)).get(ids[0]) if len(ids) == 1 else None
        return self.vector(vector)


class Placement:
    """Places vectors. t-SNE takes seconds: one runs at a time, and the results are remembered."""

    def __init__(self, max_remembered: int = 8) -> None:
        self._lock = threading.Lock()
        self._maps: OrderedDict[tuple[object, ...], list[Point]] = OrderedDict()
        self._max_remembered = max_remembered

    def place(
        self, name: str, model: Model, body: requests.SpaceRequest, texts: Mapping[str, Explanation], deadline: Deadline
    ) -> Space:
        space = EmbeddingSpace.of(model, body.stack)
        ids = space.words(MAX_WORDS)
        vocabulary = space.embeddings(ids)
        paths = {
            id: space.directions(token_paths(e, body.stack).vectors) for id, e in texts.items()
        }  # [layers, T, width]
        words = space.arithmetic(body.words, body.neighbors) if body.words.strip() else None
        if body.method == "tsne":
            points = self._tsne((name, body.step, body.stack), vocabulary, deadline)
            projection = _Projection(ids, points, [], None)
        else:
            projection = _principal(ids, vocabulary, _fitted(body.fit, space, vocabulary, paths, words))
        return Space(
            methods=["pca", "tsne"] if find_spec("openTSNE") else ["pca"],
            variance_ratios=projection.ratios,
            vocabulary_size=len(space.tokenizer),
            ids=ids,
            tokens=token_labels(space.tokenizer, ids),
            points=projection.points,
            layers=list(layer_names(model, body.stack)),
            paths=[
                token
                for id, path in paths.items()
                for token in _placed_tokens(id, texts[id], body.stack, path, projection)
            ],
            arithmetic=_placed_arithmetic(words, space, projection) if words else None,
        )

    def _tsne(self, key: tuple[object, ...], vocabulary: Tensor, deadline: Deadline) -> list[Point]:
        while not self._lock.acquire(timeout=0.5):
            deadline.check()
        try:
            if key not in self._maps:
                placed = tsne(vocabulary, deadline.check)
                self._maps[key] = _points(placed / placed.abs().max().clamp(min=1e-12))
            self._maps.move_to_end(key)
            while len(self._maps) > self._max_remembered:
                self._maps.popitem(last=False)
            return self._maps[key]
        finally:
            self._lock.release()


def nearest_by_layer(e: Explanation, stack: Stack, position: int, count: int) -> NearestEmbeddings:
    """Finds the embeddings nearest to the vector of one token at each layer."""
    space, path = EmbeddingSpace.of(e.model, stack), token_paths(e, stack)
    if not -len(path.tokens) <= position < len(path.tokens):
        message = f"position {position} is out of range: the {stack} reads {len(path.tokens)} tokens, numbered from 0"
        raise ApiError(422, message, "choose another", "query.position")
    directions = space.directions(path.vectors[:, position])  # [layers, width]
    layers = [
        NearestAtLayer(layer=layer, cosine=cosine, neighbors=[Neighbor.model_validate(each) for each in nearest])
        for layer, cosine, nearest in zip(
            path.layers, (directions @ directions[0]).tolist(), space.nearest(directions, count), strict=True
        )
    ]
    return NearestEmbeddings(token=path.tokens[position], layers=layers)


def _fitted(
    fit: str, space: EmbeddingSpace, vocabulary: Tensor, paths: Mapping[str, Tensor], words: WordArithmetic | None
) -> Tensor:
    """Returns the vectors that the axes are fitted to, [n, width]; the vocabulary if there are no others."""
    if fit == "layers" and paths:
        vectors = torch.cat([path.flatten(0, 1) for path in paths.values()])
    elif fit == "words" and words:
        neighbors = space.embeddings([neighbor.id for neighbor in words.neighbors])
        vectors = torch.cat([*(term.vector[None] for term in words.terms), words.vector[None], neighbors])
    else:
        vectors = vocabulary
    return vectors[:: -(-len(vectors) // MAX_FITTED)]


def _principal(ids: list[int], vocabulary: Tensor, fitted: Tensor) -> _Projection:
    axes = principal_axes(fitted, AXES)

    def project(vectors: Tensor) -> list[Point]:
        return _points(axes.project(vectors))

    return _Projection(ids, project(vocabulary), axes.variance_ratios.tolist(), project)


def _points(coordinates: Tensor) -> list[Point]:
    padded = F.pad(coordinates, (0, AXES - coordinates.shape[1]))  # two or fewer vectors have fewer axes
    return [(x, y, z) for x, y, z in padded.double().round(decimals=DECIMALS).tolist()]


def _placed_tokens(
    trace: str, e: Explanation, stack: Stack, path: Tensor, projection: _Projection
) -> list[PlacedToken]:
    labels, ids = (
        (e.source_tokens, e.source_ids) if stack == "encoder" else (e.decoder_input_tokens, e.decoder_input_ids)
    )
    return [
        PlacedToken(trace=trace, position=i, id=id, text=label, path=projection.vectors(path[:, i]))
        for i, (id, label) in enumerate(zip(ids, labels, strict=True))
    ]


def _placed_arithmetic(words: WordArithmetic, space: EmbeddingSpace, projection: _Projection) -> PlacedArithmetic:
    terms = [
        PlacedTerm(word=term.word, sign=term.sign, ids=list(term.ids), point=projection.token(term.ids, term.vector))
        for term in words.terms
    ]
    neighbors = [
        PlacedNeighbor(**neighbor._asdict(), point=projection.token([neighbor.id], space.embeddings([neighbor.id])[0]))
        for neighbor in words.neighbors
    ]
    return PlacedArithmetic(terms=terms, point=projection.vector(words.vector), neighbors=neighbors)
