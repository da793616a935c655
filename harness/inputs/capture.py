#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Captures post-RoPE Q and K, and V, of a Llama-family model into an HDF5 file for kvgauge.

The model is a GGUF file or a Hugging Face folder (config.json, *.safetensors, tokenizer.json). The forward pass is
NumPy in FP32 on the dequantised weights; Q, K and V are rounded to bf16 at the end. README.md in this folder has the
commands that made smollm2.h5 and the layout of the file.

Three sets of tokens go through the model:
  evaluation     one long text: K and V of every token, Q of some tokens, for the chosen layers
  calibration    samples of another text: largest |Q|, |K|, |V| per sample and head
  random_tokens  samples of uniformly random token ids: the same values
"""
import argparse
import json
import multiprocessing
import os
import struct
import sys
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # parallel over samples, in processes, instead
import numpy as np  # noqa: E402

SCRIPT_VERSION = "1.0.0"
SCHEMA_NAME, SCHEMA_VERSION = "kvgauge-captured", "1.0.0"
Q_FIRST, Q_LAST, Q_TAIL, WINDOW_STEP = 512, 64, 16, 128
RANDOM_SEED = 20240607
MODEL = None  # set before the worker processes are forked


# ------------------------------------------------------------------------------------------------ model files
class Model:
    """Weights by Hugging Face's names, hyper-parameters, and a tokenizer."""

    def __init__(self):
        self.name = self.weights = self.licence = ""
        self.layers = self.q_heads = self.kv_heads = self.head_dim = self.vocabulary = 0
        self.rope_theta = self.epsilon = 0.0
        self.tensors, self.tokenizer = {}, None


def from_interleaved(weight, heads):
    """Reorders the rows of a Q or K weight from llama.cpp's order (x0 y0 x1 y1 ..) to the two halves
    (x0 x1 .. y0 y1 ..) that Hugging Face and vLLM rotate."""
    rows, columns = weight.shape
    half = rows // heads // 2
    return weight.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_tokenizer(field):
    """Byte-level BPE from a GGUF file's vocabulary and merges."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    kind, pre = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre")
    if kind != "gpt2" or pre != "smollm":
        sys.exit(f"capture.py: tokenizer {kind}/{pre} is not supported; use a folder with tokenizer.json")
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t, k in zip(tokens, kinds) if k == 3])
    return tokenizer


def load_gguf(path):
    from collections import Counter
    from gguf import GGUFReader, dequantize

    reader = GGUFReader(path)

    def field(name, *default):
        if name not in reader.fields and default:
            return default[0]
        return reader.fields[name].contents()

    if field("general.architecture") != "llama":
        sys.exit(f"capture.py: {path}: architecture {field('general.architecture')}, not llama")
    model = Model()
    model.name = field("general.name")
    model.licence = field("general.license", "unknown")
    model.layers = field("llama.block_count")
    model.q_heads = field("llama.attention.head_count")
    model.kv_heads = field("llama.attention.head_count_kv")
    model.head_dim = field("llama.attention.key_length", field("llama.embedding_length") // model.q_heads)
    if field("llama.rope.dimension_count", model.head_dim) != model.head_dim:
        sys.exit(f"capture.py: {path}: RoPE on part of a head is not supported")
    model.rope_theta = float(field("llama.rope.freq_base", 10000.0))
    model.epsilon = float(field("llama.attention.layer_norm_rms_epsilon"))
    names = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    }
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    types = Counter()
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        types[tensor.tensor_type.name] += tensor.n_elements
        parts = tensor.name.split(".")
        if parts[-1] != "weight":
            sys.exit(f"capture.py: {path}: tensor {tensor.name}: biases are not supported")
        if parts[0] == "blk" and parts[2] in names:
            if parts[2] == "attn_q":
                weight = from_interleaved(weight, model.q_heads)
            if parts[2] == "attn_k":
                weight = from_interleaved(weight, model.kv_heads)
            model.tensors[f"model.layers.{parts[1]}.{names[parts[2]]}.weight"] = weight
        elif parts[0] in top:
            model.tensors[top[parts[0]] + ".weight"] = weight
        elif parts[0] != "rope_freqs":
            sys.exit(f"capture.py: {path}: tensor {tensor.name} is not one of a plain Llama model")
    if "rope_freqs.weight" in [t.name for t in reader.tensors]:
        sys.exit(f"capture.py: {path}: scaled RoPE frequencies are not supported")
    total = sum(types.values())
    model.weights = ", ".join(f"{t} ({100 * n / total:.1f}%)" for t, n in types.most_common())
    model.tokenizer = gguf_tokenizer(field)
    return model


def read_safetensors(path):
    """Every tensor of a .safetensors file (8 bytes of length, JSON header, data) as float32, and their types."""
    wide = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        raw = np.frombuffer(data[begin:end], wide[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = raw.astype(np.float32)
    return tensors, {e["dtype"] for n, e in header.items() if n != "__metadata__"}


def load_folder(path):
    from tokenizers import Tokenizer

    config = json.loads((path / "config.json").read_text())
    if config.get("model_type") != "llama" or config.get("rope_scaling"):
        sys.exit(f"capture.py: {path}: needs model_type llama without rope_scaling")
    model = Model()
    model.name = config.get("_name_or_path") or path.name
    model.licence = "unknown"
    model.layers = config["num_hidden_layers"]
    model.q_heads = config["num_attention_heads"]
    model.kv_heads = config.get("num_key_value_heads", model.q_heads)
    model.head_dim = config.get("head_dim") or config["hidden_size"] // model.q_heads
    model.rope_theta = float(config.get("rope_theta", 10000.0))
    model.epsilon = float(config["rms_norm_eps"])
    types = set()
    for file in sorted(path.glob("*.safetensors")):
        tensors, kinds = read_safetensors(file)
        model.tensors.update(tensors)
        types |= kinds
    biases = [name for name in model.tensors if not name.endswith(".weight")]
    if biases or "model.embed_tokens.weight" not in model.tensors:
        sys.exit(f"capture.py: {path}: not the weights of a plain Llama model ({biases[:1] or 'no embeddings'})")
    model.weights = ", ".join(sorted(types))
    model.tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    return model


def load(path):
    path = Path(path)
    model = load_folder(path) if path.is_dir() else load_gguf(path)
    model.vocabulary = model.tensors["model.embed_tokens.weight"].shape[0]
    return model


# ------------------------------------------------------------------------------------------------ forward pass
def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def rotate(x, theta):
    """RoPE on [tokens, heads, head_dim], positions from 0; rotates the two halves of a head."""
    tokens, _, dim = x.shape
    frequency = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    angle = np.arange(tokens, dtype=np.float64)[:, None] * frequency
    cosine, sine = np.cos(angle).astype(np.float32)[:, None], np.sin(angle).astype(np.float32)[:, None]
    a, b = x[..., : dim // 2], x[..., dim // 2 :]
    return np.concatenate([a * cosine - b * sine, b * cosine + a * sine], axis=-1)


def attention(q, k, v, block=512):
    """Causal softmax attention, computed for `block` queries at a time."""
    tokens, q_heads, dim = q.shape
    group = q_heads // k.shape[1]
    out = np.empty_like(q)
    for first in range(0, tokens, block):
        last = min(first + block, tokens)
        hidden = np.arange(last)[None, :] > np.arange(first, last)[:, None]
        for head in range(q_heads):
            logits = q[first:last, head] @ k[:last, head // group].T / np.float32(np.sqrt(dim))
            logits[hidden] = -np.inf
            p = np.exp(logits - logits.max(axis=1, keepdims=True))
            out[first:last, head] = p @ v[:last, head // group] / p.sum(axis=1, keepdims=True)
    return out


def forward(model, ids, see=None, stop=None):
    """Hidden states [tokens, hidden] after the last norm. Calls see(layer, q, k, v) for each layer. With `stop` the
    computation ends after q, k and v of that layer, and the result is None."""
    w = model.tensors
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(model.layers):
        at = f"model.layers.{layer}."
        h = rms_norm(x, w[at + "input_layernorm.weight"], model.epsilon)
        q, k, v = (
            (h @ w[f"{at}self_attn.{name}_proj.weight"].T).reshape(len(ids), heads, model.head_dim)
            for name, heads in (("q", model.q_heads), ("k", model.kv_heads), ("v", model.kv_heads))
        )
        q, k = rotate(q, model.rope_theta), rotate(k, model.rope_theta)
        if see:
            see(layer, q, k, v)
        if layer == stop:
            return None
        x = x + attention(q, k, v).reshape(len(ids), -1) @ w[at + "self_attn.o_proj.weight"].T
        h = rms_norm(x, w[at + "post_attention_layernorm.weight"], model.epsilon)
        gate = h @ w[at + "mlp.gate_proj.weight"].T
        h = gate / (1 + np.exp(-gate)) * (h @ w[at + "mlp.up_proj.weight"].T)
        x = x + h @ w[at + "mlp.down_proj.weight"].T
    return rms_norm(x, w["model.norm.weight"], model.epsilon)


def logits(model, hidden):
    w = model.tensors
    return hidden @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T


def perplexity(model, ids, see=None):
    """exp of the mean negative log-likelihood of ids[1:], and the share of top-1 hits."""
    hidden, total, hits = forward(model, ids, see), 0.0, 0
    for first in range(0, len(ids) - 1, 256):
        last = min(first + 256, len(ids) - 1)
        z = logits(model, hidden[first:last]).astype(np.float64)
        top = z.max(axis=1)
        right = z[np.arange(last - first), ids[first + 1 : last + 1]]
        total += np.sum(top + np.log(np.exp(z - top[:, None]).sum(axis=1)) - right)
        hits += int(np.sum(z.argmax(axis=1) == ids[first + 1 : last + 1]))
    return float(np.exp(total / (len(ids) - 1))), hits / (len(ids) - 1)


def bf16(x):
    """FP32 to bf16 bits, round to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def widen(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


# ------------------------------------------------------------------------------------------------ token sets
def unwrap(text):
    """Joins hard-wrapped lines to one line per paragraph, the usual form of texts for language models."""
    paragraphs = [" ".join(p.split()) for p in text.replace("\r", "").split("\n\n")]
    return "\n\n".join(p for p in paragraphs if p)


def tokens_of(model, path):
    return np.array(model.tokenizer.encode(unwrap(Path(path).read_text(encoding="utf-8"))).ids, np.int64)


def q_positions(tokens):
    """Positions whose Q is written: the first, the last, and a few before each multiple of the window step."""
    p = np.arange(tokens)
    keep = (p < Q_FIRST) | (p >= tokens - Q_LAST) | (p % WINDOW_STEP >= WINDOW_STEP - Q_TAIL)
    return p[keep]


def absmax_of_sample(task):
    """{layer: [tensor][head]} of one sample, from the bf16 values. The process inherited MODEL by fork."""
    ids, layers = task
    out = {}

    def see(layer, *tensors):
        if layer in layers:
            out[layer] = [np.abs(widen(bf16(x))).max(axis=(0, 2)) for x in tensors]

    forward(MODEL, ids, see, max(layers))
    return out


def capture_absmax(pool, samples, layers, what):
    """{layer: {tensor: [samples, heads]}}"""
    start, results = time.time(), []
    for result in pool.imap(absmax_of_sample, [(ids, layers) for ids in samples]):
        results.append(result)
        print(f"\r{what}: {len(results)}/{len(samples)} samples, {time.time() - start:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    return {n: {t: np.array([r[n][i] for r in results], np.float32) for i, t in enumerate("qkv")} for n in layers}


def capture_values(task):
    """{layer: {tensor: bf16 bits}} with Q only at `positions`; then perplexity and top-1 hits of the text."""
    ids, layers, positions = task
    out = {}

    def see(layer, q, k, v):
        if layer in layers:
            out[layer] = {"q": bf16(q[positions]), "k": bf16(k), "v": bf16(v)}

    return out, perplexity(MODEL, ids, see)


# ------------------------------------------------------------------------------------------------ the file
def write(final_path, model, arguments, evaluation, values, absmax, text):
    import h5py

    path = final_path + ".partial"  # renamed when complete
    layers = sorted(values)
    with h5py.File(path, "w", libver=("earliest", "v110")) as file:
        file.attrs.update(
            schema_name=SCHEMA_NAME, schema_version=SCHEMA_VERSION, generator=f"capture.py {SCRIPT_VERSION}",
            model=arguments.model_name or model.name, model_source=arguments.model_source,
            model_licence=arguments.model_licence or model.licence, weights=model.weights,
            dtype="bfloat16 bit patterns in uint16", compute="FP32 forward pass on dequantised weights",
            rope="halves rotated (the order of Hugging Face and vLLM); Q and K are post-RoPE",
            q_heads=np.int64(model.q_heads), kv_heads=np.int64(model.kv_heads),
            head_dim=np.int64(model.head_dim), model_layers=np.int64(model.layers), rope_theta=model.rope_theta,
        )
        file["layers"] = np.array(layers, np.int64)
        group = file.create_group("evaluation")
        positions = q_positions(len(evaluation))
        group.attrs.update(
            source=arguments.evaluation_source, licence=arguments.evaluation_licence,
            tokens=np.int64(len(evaluation)), q_first=np.int64(Q_FIRST), q_last=np.int64(Q_LAST),
            q_tail=np.int64(Q_TAIL), window_step=np.int64(WINDOW_STEP),
            perplexity=text["evaluation"][0], top1=text["evaluation"][1],
        )
        group["token_ids"] = evaluation.astype(np.int32)
        group["q_positions"] = positions.astype(np.int64)
        for layer in layers:
            for name, bits in values[layer].items():
                group.create_dataset(f"layer_{layer:02d}/{name}", data=bits, chunks=(min(256, len(bits)),) + bits.shape[1:],
                                     compression="gzip", compression_opts=9, shuffle=True)
        about = {
            "calibration": (arguments.calibration_source, arguments.calibration_licence),
            "random_tokens": (f"uniform token ids, numpy PCG64 seed {RANDOM_SEED}", "none needed"),
        }
        for name, by_layer in absmax.items():
            group = file.create_group(name)
            samples = len(by_layer[layers[0]]["q"])
            length = arguments.sample_tokens if name == "calibration" else arguments.random_sample_tokens
            group.attrs.update(source=about[name][0], licence=about[name][1], samples=np.int64(samples),
                               tokens_per_sample=np.int64(length), tokens=np.int64(samples * length),
                               perplexity=text[name][0], top1=text[name][1])
            for layer in layers:
                for tensor, largest in by_layer[layer].items():
                    group[f"layer_{layer:02d}/{tensor}_absmax"] = largest
    os.replace(path, final_path)


# ------------------------------------------------------------------------------------------------ commands
def check(model, evaluation, calibration, random):
    """Checks the forward pass. A wrong rotation or two swapped weights change every value that is printed."""
    failed = False
    for name, ids in (("evaluation text", evaluation[:1024]), ("calibration text", calibration[:1024]),
                      ("random tokens", random[:512])):
        value, top1 = perplexity(model, ids)
        print(f"{name}: perplexity {value:.2f}, top-1 {100 * top1:.1f}%")
        failed |= value > 40 if "text" in name else value < model.vocabulary / 4
    prompts = {
        "The capital of France is": " Paris",
        "The opposite of hot is": " cold",
        "Monday, Tuesday, Wednesday,": " Thursday",
        "Once upon a time, there was a": None,
    }
    for prompt, want in prompts.items():
        ids = list(model.tokenizer.encode(prompt).ids)
        for _ in range(12):
            ids.append(int(logits(model, forward(model, np.array(ids))[-1:])[0].argmax()))
        text = model.tokenizer.decode(ids)
        print(repr(text))
        failed |= want is not None and want not in text[len(prompt):]
    if failed:
        sys.exit("capture.py: check failed: the forward pass is wrong, or the model does not know English")
    print("check passed: the forward pass is right")


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, help="GGUF file, or folder with config.json and safetensors")
    p.add_argument("--calibration", required=True, help="text file (UTF-8)")
    p.add_argument("--evaluation", required=True, help="text file (UTF-8), different from the calibration text")
    p.add_argument("--out", help="HDF5 file to write")
    p.add_argument("--check", action="store_true",
                   help="check the forward pass (perplexity, predictions) and write nothing")
    p.add_argument("--layers", default="", help="comma-separated layer numbers (default: first, last and two between)")
    p.add_argument("--tokens", type=int, default=4096, help="tokens of the evaluation text (default 4096)")
    p.add_argument("--samples", type=int, default=64, help="samples of each calibration set (default 64)")
    p.add_argument("--sample-tokens", type=int, default=512, help="tokens of a calibration sample (default 512)")
    p.add_argument("--random-sample-tokens", type=int, default=128,
                   help="tokens of a random-token sample (default 128; 64 samples make 8192, vLLM's warm-up batch)")
    p.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default: one per CPU)")
    for name in ("model-name", "model-source", "model-licence", "calibration-source", "calibration-licence",
                 "evaluation-source", "evaluation-licence"):
        p.add_argument("--" + name, default="", help="text of this attribute in the file")
    a = p.parse_args()
    if not a.check and not a.out:
        p.error("give --out FILE or --check")
    if a.tokens % WINDOW_STEP or a.tokens < Q_FIRST + Q_LAST:
        p.error(f"--tokens must be a multiple of {WINDOW_STEP} and at least {Q_FIRST + Q_LAST}")
    return a


def main():
    a = parse()
    model = load(a.model)
    n = model.layers
    layers = [int(x) for x in a.layers.split(",")] if a.layers else sorted({0, n // 3, 2 * n // 3, n - 1})
    if not all(0 <= x < n for x in layers):
        sys.exit(f"capture.py: layers must be 0 to {n - 1}")
    evaluation, calibration = tokens_of(model, a.evaluation), tokens_of(model, a.calibration)
    wanted = a.samples * a.sample_tokens
    for path, have, need in ((a.evaluation, evaluation, a.tokens), (a.calibration, calibration, wanted)):
        if len(have) < need:
            sys.exit(f"capture.py: {path} has {len(have)} tokens, {need} are needed")
    evaluation, calibration = evaluation[: a.tokens], calibration[:wanted]
    draw = np.random.Generator(np.random.PCG64(RANDOM_SEED))
    random = draw.integers(0, model.vocabulary, a.samples * a.random_sample_tokens)
    if a.check:
        return check(model, evaluation, calibration, random)
    global MODEL  # inherited by fork; otherwise each process would unpickle 500 MB
    MODEL = model
    with multiprocessing.get_context("fork").Pool(a.jobs) as pool:
        values = pool.apply_async(capture_values, [(evaluation, layers, q_positions(len(evaluation)))])
        absmax = {
            "calibration": capture_absmax(pool, calibration.reshape(a.samples, -1), layers, "calibration"),
            "random_tokens": capture_absmax(pool, random.reshape(a.samples, -1), layers, "random tokens"),
        }
        values, of_evaluation = values.get()
    text = {"evaluation": of_evaluation, "calibration": perplexity(model, calibration[: a.sample_tokens]),
            "random_tokens": perplexity(model, random[: a.sample_tokens])}
    print({k: round(v[0], 2) for k, v in text.items()}, file=sys.stderr)
    write(a.out, model, a, evaluation, values, absmax, text)
    print(f"{a.out}: {Path(a.out).stat().st_size} bytes, layers {layers}", file=sys.stderr)


if __name__ == "__main__":
    main()
