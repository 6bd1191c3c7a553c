"""Train the tutor's small models: which topic and which narrower point a question is about, what a claim states.

    python scripts/train_tutor.py            # writes mingce/explain/question/{topics,points,claims}.model

The data are in the repository: how people ask (`## asked` of every topic, its title, its points), what they state
(mingce/texts/propositions), sentences made by a grammar, and what is none of our business (scripts/tutor). The models
are multinomial regressions with int8 weights; `--report` cross-validates, `--check` asks whether they are of this data.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from tutor.grammar import generated_questions

from mingce.explain.question.classifier import OTHER, Classifier, expanded, load
from mingce.explain.question.features import features, wide_features
from mingce.explain.question.propositions import propositions, without_polarity
from mingce.explain.topic import POINT
from mingce.explain.topics import TOPICS

FOLDER = Path(__file__).parent / "tutor"
MODELS = Path(__file__).parent.parent / "mingce" / "explain" / "question"
PENALTY = {"topics": 8e-6, "points": 1e-5, "claims": 8e-6}
STEPS, RATE = 120, 0.13
WIDE = ("points",)
"""Models that read every word, each weighed by how rare it is."""
LIGHT = {"c": 0.4, "z": 0.5}
"""How much pieces of words and single characters weigh beside whole words and pairs."""
RAREST = 255
SHORTEST_ANSWER = 9
_SENTENCES = re.compile(r"[。；]|(?<=[a-z\d`])[.;] ")
OUTSIDE = 0.9
"""How much a sentence of what is none of our business weighs."""
LEAST = 2
"""A feature that fewer sentences have is no feature."""

Sample = tuple[str, str, float]
"""A sentence, its class, how much it weighs."""


def outside() -> Iterator[str]:
    """What people ask that is not about PPO."""
    for file in sorted(FOLDER.glob("out_of_scope.*.txt")):
        yield from filter(None, file.read_text(encoding="utf-8").splitlines())


def written_questions() -> Iterator[tuple[str, str]]:
    """More of what people ask, with its topic: a line each, `topic<TAB>question`."""
    for file in sorted(FOLDER.glob("questions.*.txt")):
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            topic, _, text = line.partition("\t")
            yield text, topic


def reworded() -> Iterator[tuple[str, str]]:
    """The points' questions in other words, a line each, `point<TAB>question`: for the models alone."""
    for file in sorted(FOLDER.glob("asked.*.txt")):
        for line in filter(None, file.read_text(encoding="utf-8").splitlines()):
            point, _, text = line.partition("\t")
            yield text, point


def topic_samples() -> list[Sample]:
    """Sentences with their topics."""
    samples: list[Sample] = []
    for topic in TOPICS.values():
        for title in topic.title:
            samples.append((title, topic.id, 2.0))
        for phrase in (*topic.asked[0], *topic.asked[1]):
            samples.append((phrase, topic.id, 1.0))
        for point in topic.points.values():
            samples += [(phrase, topic.id, 1.0) for phrase in (*point.asked[0], *point.asked[1])]
    for proposition in propositions().values():
        if proposition.topic in TOPICS:
            samples += [(phrase, proposition.topic, 0.6) for phrase in (*proposition.said, *proposition.denied)]
    samples += [(text, topic, 1.0) for text, topic in written_questions()]
    samples += [(text, point.partition(POINT)[0], 0.8) for text, point in reworded()]
    samples += [(text, topic, 0.5) for text, topic in generated_questions()]
    samples += [(text, OTHER, OUTSIDE) for text in outside()]
    unknown = {name for _, name, _ in samples} - {*TOPICS, OTHER}
    assert not unknown, f"no such topics: {unknown}"
    return samples


def point_samples() -> list[Sample]:
    """Narrower questions with their topic and point, and the words of the answers.

    A question that only names a topic has no point; what is not about PPO is OTHER.
    """
    samples: list[Sample] = []
    for topic in TOPICS.values():
        for key, point in topic.points.items():
            name = f"{topic.id}{key}"
            samples += [(phrase, name, 1.0) for phrase in (*point.asked[0], *point.asked[1])]
            parts = (part for said in point.said for part in _SENTENCES.split(said))
            samples += [(part, name, 0.6) for part in parts if len(part) >= SHORTEST_ANSWER]
    samples += [(text, point, 1.0) for text, point in reworded()]
    known = {f"{topic.id}{key}" for topic in TOPICS.values() for key in topic.points}
    assert {name for _, name, _ in samples} <= known, "a point of scripts/tutor/asked.*.txt is not there"
    pointed = {topic.id for topic in TOPICS.values() if topic.points}
    samples += [(text, f"{name}{POINT}", 0.1) for text, name in generated_questions() if name in pointed]
    samples += [(text, OTHER, OUTSIDE) for text in outside()]
    return samples


def claim_samples() -> list[Sample]:
    """Statements with their propositions; questions that state nothing are OTHER."""
    samples: list[Sample] = []
    for proposition in propositions().values():
        samples += [
            (without_polarity(phrase), proposition.id, 1.0) for phrase in (*proposition.said, *proposition.denied)
        ]
    rest = [phrase for topic in TOPICS.values() for phrase in (*topic.asked[0], *topic.asked[1])]
    samples += [(without_polarity(phrase), OTHER, 0.15) for phrase in (*rest, *outside())]
    return samples


def vocabulary(name: str, samples: Iterable[Sample]) -> tuple[dict[str, int], bytes]:
    """The features that at least LEAST sentences have, and in a wide model how rare each is."""
    wide = name in WIDE
    counts: Counter[str] = Counter()
    total = 0
    for text, _, _ in samples:
        counts.update(wide_features(text) if wide else expanded(features(text)))
        total += 1
    strange = [] if wide else [f"?{k}" for k in range(5)]
    names = [*strange, *sorted(one for one, count in counts.items() if count >= LEAST)]
    rows = {one: k for k, one in enumerate(names)}
    if not wide:
        return rows, b""
    most = math.log(total / LEAST)
    return rows, bytes(max(1, round(RAREST * _light(one) * math.log(total / counts[one]) / most)) for one in names)


def _light(feature: str) -> float:
    return LIGHT.get(feature[0], 1.0) if feature[0] != "z" or len(feature) == len("z:字") else 1.0


def untrained(name: str, samples: list[Sample]) -> Classifier:
    """A model that knows the features and classes and has no weights yet."""
    names, rarity = vocabulary(name, samples)
    classes = sorted({label for _, label, _ in samples})
    return Classifier(packed(classes, 0.0, [0.0] * len(classes), "", list(names), rarity, b""))


def packed(
    classes: list[str], scale: float, bias: list[float], check: str, names: list[str], rarity: bytes, rows: bytes
) -> bytes:
    """A model's file."""
    header = {"classes": classes, "scale": scale, "bias": bias, "checksum": check, "wide": bool(rarity)}
    body = zlib.compress("\n".join(names).encode() + b"\n\n" + rarity + rows, 9)
    return json.dumps(header, ensure_ascii=False).encode() + b"\n" + body


def fit(samples: list[Sample], model: Classifier, penalty: float) -> tuple[Any, Any]:
    """Weights [features, classes] and biases, by Adam on the weighted log loss."""
    import torch  # only here: --check must be quick

    places = {name: k for k, name in enumerate(model.classes)}
    vectors = [model.vector(text) for text, _, _ in samples]
    counts = Counter(name for _, name, _ in samples)
    weight = torch.tensor([w / counts[name] ** 0.5 for _, name, w in samples])
    weight /= weight.sum()
    targets = torch.tensor([places[name] for _, name, _ in samples])
    at = torch.tensor([k for k, vector in enumerate(vectors) for _ in vector])
    columns = torch.tensor([place for vector in vectors for place in vector])
    shares = torch.tensor([share for vector in vectors for share in vector.values()])
    matrix = torch.sparse_coo_tensor(torch.stack([at, columns]), shares, (len(samples), len(model.rows))).coalesce()
    weights = torch.zeros(len(model.rows), len(places), requires_grad=True)
    bias = torch.zeros(len(places), requires_grad=True)
    adam = torch.optim.Adam([weights, bias], lr=RATE)
    for _ in range(STEPS):
        adam.zero_grad()
        scores = torch.sparse.mm(matrix, weights) + bias
        losses = torch.nn.functional.cross_entropy(scores, targets, reduction="none")
        ((losses * weight).sum() + penalty * (weights * weights).sum()).backward()
        adam.step()
    return weights.detach().numpy(), bias.detach().numpy()


def checksum(samples: list[Sample]) -> str:
    """Of the data a model was trained on."""
    return hashlib.sha256(json.dumps(samples, ensure_ascii=False).encode()).hexdigest()[:16]


def write(name: str, samples: list[Sample]) -> None:
    """Trains a model and writes its file."""
    model = untrained(name, samples)
    weights, bias = fit(samples, model, PENALTY[name])
    scale = float(np.abs(weights).max()) / 127
    matrix = np.round(weights / scale).astype(np.int8)
    used = [place for place in range(len(model.rows)) if matrix[place].any()]
    listing = list(model.rows)
    rarity = bytes(model.rarity[place] for place in used) if model.rarity else b""
    content = packed(
        list(model.classes), round(scale, 8), [round(float(x), 4) for x in bias], checksum(samples),
        [listing[place] for place in used], rarity, matrix[used].tobytes(),
    )  # fmt: skip
    (MODELS / f"{name}.model").write_bytes(content)
    print(
        f"{name}: {len(samples):,} sentences, {len(model.classes)} classes, {len(used):,} features, {len(content):,} B"
    )


def report(name: str, samples: list[Sample], folds: int = 5) -> None:
    """Cross-validated accuracy over the sentences that people wrote."""
    order = list(range(len(samples)))
    random.Random(0).shuffle(order)
    right = total = 0
    for fold in range(folds):
        held = set(order[fold::folds])
        training = [sample for k, sample in enumerate(samples) if k not in held]
        model = untrained(name, training)
        weights, bias = fit(training, model, PENALTY[name])
        for text, label, weight in (samples[k] for k in held):
            vector = model.vector(text)
            if weight < 0.5 or not vector:
                continue
            scores = np.array(list(vector.values())) @ weights[list(vector)] + bias
            right += model.classes[int(scores.argmax())] == label
            total += 1
    print(f"cross-validated: {right} of {total} ({right / total:.1%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="only cross-validate")
    parser.add_argument("--check", action="store_true", help="fail if a model was trained on other data")
    asked = parser.parse_args()
    for name, samples in (("topics", topic_samples()), ("points", point_samples()), ("claims", claim_samples())):
        if asked.report:
            print(name, end=" ")
            report(name, samples)
        elif not asked.check:
            write(name, samples)
        elif load(name).checksum != checksum(samples):
            sys.exit(f"{name}.model was trained on other data: run python scripts/train_tutor.py")


if __name__ == "__main__":
    main()
