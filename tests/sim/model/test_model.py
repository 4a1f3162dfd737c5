import numpy as np
import pytest

from pequin.errors import InputError
from pequin_sim.model import (
    Formats,
    MatrixFormat,
    ModelShape,
    ReferenceDecoder,
    matrix_rows,
    quantize_model,
    random_model,
    random_quantized,
    rotary_order,
    rotary_table,
)
from pequin_sim.model.model import LayerWeights, Model
from pequin_sim.mx import Format

ODD = {
    "layers": 2,
    "hidden": 72,
    "heads": 6,
    "kv_heads": 3,
    "head_dim": 20,
    "mlp": 50,
    "vocab": 33,
}


def shape(**changes):
    return ModelShape(**{**ODD, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "layers must be a whole number of at least 1, not 0"),
        ({"heads": 4}, "heads must be a multiple of kv_heads, but 4 is none of 3"),
        ({"head_dim": 21}, "head_dim must be even and at most 224, not 21"),
        ({"head_dim": 226}, "not 226"),
        ({"norm_eps": 0.0}, "norm_eps and rope_theta must be positive"),
        ({"rotary": "spiral"}, "rotary 'spiral' is unknown; choose one of adjacent, half"),
    ],
)
def test_bad_shapes_are_refused(changes, message):
    with pytest.raises(InputError, match=message.replace("(", "\\(")):
        shape(**changes)


def test_formats_are_chosen_by_matrix():
    formats = Formats.of("mxfp4", head="mxint8", k="mxfp4x2")
    assert formats["k"] == MatrixFormat(Format.MXFP4, 2)
    assert formats["head"].fmt is Format.MXINT8
    assert formats["q"] == formats.default == MatrixFormat()
    with pytest.raises(InputError, match="matrix 'w1' does not exist"):
        Formats.of(w1="mxint8")
    with pytest.raises(InputError, match="format 'fp8' is unknown"):
        Formats.of("fp8")
    with pytest.raises(InputError, match="mxint8 takes planes"):
        Formats.of("mxint8x2")


def test_wrong_arrays_are_refused():
    model = random_model(shape(), 1)
    with pytest.raises(InputError, match=r"head must have the shape \(33, 72\)"):
        Model(model.shape, model.embedding, model.layers, model.norm, model.head[:5])
    with pytest.raises(InputError, match="has 2 layers, but 1 are given"):
        Model(model.shape, model.embedding, model.layers[:1], model.norm, model.head)


def test_parameters_count_the_matrices():
    model = random_model(shape(), 1)
    matrices = [getattr(w, n) for w in model.layers for n in ("q", "k", "v", "o", "gate", "up")]
    matrices += [w.down for w in model.layers]
    assert model.shape.parameters == sum(m.size for m in matrices) + 2 * 33 * 72


def test_random_models_depend_on_the_seed_alone():
    a, b, c = (random_model(shape(), seed) for seed in (1, 1, 2))
    assert np.array_equal(a.layers[1].down, b.layers[1].down)
    assert not np.array_equal(a.layers[1].down, c.layers[1].down)
    assert random_model(shape(), 1, tied=True).head is not None
    tied = random_model(shape(), 1, tied=True)
    assert tied.head is tied.embedding


@pytest.mark.parametrize("rotary", ["adjacent", "half"])
def test_folding_keeps_the_function(rotary):
    """With 8 bits and more, quantized weights give nearly the float model's logits."""
    model = random_model(shape(rotary=rotary), 3)
    quantized = quantize_model(model, Formats.of("mxint8"))
    tokens = [3, 17, 32, 3, 9]
    exact = ReferenceDecoder(model).run(tokens)
    rounded = ReferenceDecoder(quantized.dequantized()).run(tokens)
    bound = ReferenceDecoder(model, quantized).run(tokens)
    for a, b, c in zip(exact, rounded, bound, strict=True):
        error = np.abs(a.logits - b.logits)
        assert np.array_equal(a.logits, c.logits)
        assert error.max() < 0.1
        assert 0 < error.max() < np.max(c.bound)
        assert (c.sigma > a.sigma).all()


def test_rotary_conventions_differ_and_agree_after_permutation():
    halves = random_model(shape(rotary="half"), 4)
    order = rotary_order(halves.shape)
    assert sorted(order) == list(range(20))
    assert list(order[:4]) == [0, 10, 1, 11]
    swapped = [
        LayerWeights(
            **{
                **vars(w),
                "q": w.q.reshape(-1, 20, 72)[:, order].reshape(w.q.shape),
                "k": w.k.reshape(-1, 20, 72)[:, order].reshape(w.k.shape),
            }
        )
        for w in halves.layers
    ]
    same = Model(shape(), halves.embedding, tuple(swapped), halves.norm, halves.head)
    unpermuted = Model(shape(), halves.embedding, halves.layers, halves.norm, halves.head)
    a, b, c = (ReferenceDecoder(m).run([1, 2, 3])[2].logits for m in (halves, same, unpermuted))
    assert np.allclose(a, b)
    assert not np.allclose(a, c)


def test_rotary_table_holds_cosines_and_sines():
    table = rotary_table(shape(), 9)
    assert table.shape == (9, 20)
    assert table.dtype == np.float32
    assert np.array_equal(table[0], [1, 0] * 10)
    angle = 5 * 10000.0 ** (-2 * 3 / 20)
    assert np.allclose(table[5, 6:8], [np.cos(angle), np.sin(angle)], atol=1e-7)


def test_the_reference_is_a_plain_transformer():
    """All positions at once, written the textbook way, give the logits of the cached decoder."""
    s = shape(layers=1, rotary="half")
    m = random_model(s, 5)
    tokens = [3, 17, 32, 3, 9, 1]
    x = m.embedding[tokens].astype(np.float64)
    w = m.layers[0]

    def norm(x, gain):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + s.norm_eps) * gain

    def rotate(x):
        angle = np.arange(len(x))[:, None] * s.rope_theta ** (-np.arange(10) / 10)
        a, b = x[..., :10], x[..., 10:]
        c, n = np.cos(angle)[:, None], np.sin(angle)[:, None]
        return np.concatenate([a * c - b * n, b * c + a * n], axis=-1)

    n = norm(x, w.norm_attention)
    q = rotate((n @ w.q.T).reshape(6, 6, 20))
    k = np.repeat(rotate((n @ w.k.T).reshape(6, 3, 20)), 2, axis=1)
    v = np.repeat((n @ w.v.T).reshape(6, 3, 20), 2, axis=1)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(20)
    scores = np.where(np.tri(6, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    x = x + np.einsum("hij,jhd->ihd", p, v).reshape(6, 120) @ w.o.T
    n = norm(x, w.norm_mlp)
    gate = n @ w.gate.T
    x = x + (gate / (1 + np.exp(-gate)) * (n @ w.up.T)) @ w.down.T
    logits = norm(x, m.norm) @ m.head.T
    found = np.stack([r.logits for r in ReferenceDecoder(m).run(tokens)])
    assert np.allclose(found, logits, atol=1e-10)


def test_tokens_outside_the_vocabulary_are_refused():
    with pytest.raises(InputError, match="token 33 is not in the vocabulary of 33"):
        ReferenceDecoder(random_model(shape(), 1)).step(33)


def test_tensors_have_the_stated_shapes():
    s = shape()
    formats = Formats.of("mxfp4", q="mxint8", down="mxfp4x2")
    for model in (quantize_model(random_model(s, 1), formats), random_quantized(s, 1, formats)):
        for name, tensor in [*model.layers[1].items(), ("head", model.head)]:
            assert (tensor.rows, tensor.k) == matrix_rows(s, name)
            assert tensor.fmt is formats[name].fmt
            assert tensor.planes == formats[name].planes
        assert model.embedding.k == 96
    assert matrix_rows(s, "o") == (72, 6 * 32)


def test_random_codes_keep_activations_near_one():
    s = shape(layers=3, hidden=128, mlp=256)
    for formats in (Formats.of("mxfp4"), Formats.of("mxint8"), Formats.of("mxfp4x2")):
        decoder = ReferenceDecoder(random_quantized(s, 2, formats).dequantized())
        logits = decoder.run([1, 2, 3])[2].logits
        assert 0.3 < logits.std() < 3


def test_an_fp32_embedding_is_kept():
    model = random_model(shape(), 1)
    kept = quantize_model(model, fp32_embedding=True)
    assert np.array_equal(kept.embedding_values(), model.embedding)
    rounded = quantize_model(model).embedding_values()
    assert 0 < np.abs(rounded - model.embedding).max() < 2.0**-5
