#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the seeds of tests/fuzz/corpus: small files of every format, whole and damaged.

The seeds are committed; this tool is here to show where they come from. Output is the same each time.
"""
import json
import pathlib
import random
import struct

CORPUS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fuzz" / "corpus"


def write(target, name, data):
    folder = CORPUS / f"fuzz_{target}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


# ---- GGUF -------------------------------------------------------------------------------------------

U32, F32, BOOL, STRING, ARRAY, U64 = 4, 6, 7, 8, 9, 10


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def meta(key, kind, value):
    head = text(key) + struct.pack("<I", kind)
    if kind == STRING:
        return head + text(value)
    if kind == ARRAY:
        item, values = value
        body = b"".join(text(v) if item == STRING else struct.pack("<i", v) for v in values)
        return head + struct.pack("<IQ", item, len(values)) + body
    return head + struct.pack({U32: "<I", F32: "<f", BOOL: "<B", U64: "<Q"}[kind], value)


def gguf(version=3, arch="llama", n_vocab=40, kind=0, alignment=32, damage=None):
    """A one-layer model; kind: the ggml type of its matrices (0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 8 Q8_0)."""
    n_embd, n_ff, n_head = 32, 32, 2
    rng = random.Random(kind * 100 + version)
    metas = [
        meta("general.architecture", STRING, arch),
        meta("general.alignment", U32, alignment),
        meta(f"{arch}.block_count", U32, 1),
        meta(f"{arch}.context_length", U32, 64),
        meta(f"{arch}.embedding_length", U32, n_embd),
        meta(f"{arch}.feed_forward_length", U32, n_ff),
        meta(f"{arch}.attention.head_count", U32, n_head),
        meta(f"{arch}.attention.head_count_kv", U32, 1),
        meta(f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5),
        meta(f"{arch}.rope.freq_base", F32, 10000.0),
        meta(f"{arch}.vocab_size", U32, n_vocab),
        meta("tokenizer.ggml.model", STRING, "gpt2"),
        meta("tokenizer.ggml.pre", STRING, "smollm"),
        meta("tokenizer.ggml.tokens", ARRAY, (STRING, [chr(97 + i % 26) * (1 + i // 26) for i in range(n_vocab)])),
        meta("tokenizer.ggml.token_type", ARRAY, (5, [1] * n_vocab)),
        meta("tokenizer.ggml.merges", ARRAY, (STRING, ["a a", "b b"])),
        meta("tokenizer.ggml.eos_token_id", U32, 2),
        meta("tokenizer.ggml.add_bos_token", BOOL, 0),
    ]
    matrices = [("token_embd.weight", n_vocab, n_embd)]
    for name, rows, cols in [("attn_q", 32, 32), ("attn_k", 16, 32), ("attn_v", 16, 32), ("attn_output", 32, 32),
                             ("ffn_gate", 32, 32), ("ffn_up", 32, 32), ("ffn_down", 32, 32)]:
        matrices.append((f"blk.0.{name}.weight", rows, cols))
    vectors = ["output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]
    block = {0: 128, 1: 64, 2: 18, 3: 20, 8: 34}[kind]
    rows, data = [], b""
    for name, n_out, n_in in matrices:
        size = n_out * n_in // 32 * block
        rows.append((name, [n_in, n_out], kind, len(data)))
        # zeros compress well in the repository and are finite scales
        data += bytes(rng.randrange(3) for _ in range(16)) + bytes(size - 16)
        data += bytes(-len(data) % alignment)
    for name in vectors:
        rows.append((name, [n_embd], 0, len(data)))
        data += struct.pack("<f", 1.0) * n_embd
        data += bytes(-len(data) % alignment)
    if damage:
        rows = damage(rows)
    table = b"".join(
        text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", d) for d in shape)
        + struct.pack("<IQ", k, at) for name, shape, k, at in rows)
    out = b"GGUF" + struct.pack("<IQQ", version, len(rows), len(metas)) + b"".join(metas) + table
    return out + bytes(-len(out) % alignment) + data


def gguf_seeds():
    small = gguf(kind=2)
    write("gguf", "q4_0_v3", small)
    write("gguf", "q4_1_v2", gguf(version=2, kind=3))
    write("gguf", "q8_0_qwen2", gguf(arch="qwen2", kind=8))
    write("gguf", "align64_qwen3", gguf(arch="qwen3", kind=2, alignment=64))
    write("gguf", "truncated", small[:-40])
    write("gguf", "cut_in_metadata", small[:300])
    write("gguf", "unknown_type", gguf(kind=2, damage=lambda r: [(n, s, 12, a) for n, s, _, a in r]))
    write("gguf", "duplicate_name", gguf(kind=2, damage=lambda r: r + r[:1]))
    write("gguf", "overlap", gguf(kind=2, damage=lambda r: [(n, s, k, 0) for n, s, k, _ in r]))
    write("gguf", "huge_shape", gguf(kind=2, damage=lambda r: [(n, [1 << 40, 1 << 40], k, a) for n, s, k, a in r]))
    write("gguf", "many_tensors", b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1))
    write("gguf", "long_string", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", (1 << 64) - 1) + b"x")


# ---- safetensors ------------------------------------------------------------------------------------


def safetensors(header, data, pad=0):
    if not isinstance(header, bytes):
        header = json.dumps(header, separators=(",", ":")).encode()
    header += b" " * pad
    return struct.pack("<Q", len(header)) + header + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"a": tensor("F32", [2, 2], 0, 16), "b": tensor("BF16", [3], 16, 22), "__metadata__": {"format": "mlx"}}
    write("safetensors", "two", safetensors(two, bytes(22)))
    write("safetensors", "odd_header", safetensors(two, bytes(22), pad=3))
    write("safetensors", "empty_table", safetensors({}, b""))
    write("safetensors", "shape_lies", safetensors({"a": tensor("F32", [1000, 1000], 0, 4)}, bytes(4)))
    write("safetensors", "past_end", safetensors({"a": tensor("F32", [1], 0, 4000000)}, bytes(4)))
    write("safetensors", "overlap", safetensors({"k": tensor("F16", [8], 0, 16), "v": tensor("F16", [8], 0, 16)}, bytes(16)))
    write("safetensors", "gap", safetensors({"k": tensor("U8", [4], 0, 4), "v": tensor("U8", [4], 8, 12)}, bytes(12)))
    write("safetensors", "duplicate_key", safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                                      b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))
    write("safetensors", "unknown_dtype", safetensors({"a": tensor("F99", [1], 0, 1)}, b"x"))
    write("safetensors", "scalar", safetensors({"a": tensor("I64", [], 0, 8)}, bytes(8)))
    write("safetensors", "long_header", struct.pack("<Q", 1 << 62) + b"{}")
    write("safetensors", "packed", safetensors({
        "w.weight": tensor("U32", [2, 4], 0, 32), "w.scales": tensor("BF16", [2, 1], 32, 36),
        "w.biases": tensor("BF16", [2, 1], 36, 40)}, bytes(40)))


# ---- JSON -------------------------------------------------------------------------------------------

QWEN_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
              r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_letters():
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    letters, n = {}, 0
    for b in range(256):
        if b in plain:
            letters[b] = chr(b)
        else:
            letters[b] = chr(256 + n)
            n += 1
    return letters


def tokenizer_json(**changes):
    vocab = {letter: i for i, letter in enumerate(byte_letters().values())}
    merges = []
    for left, right in [("t", "h"), ("th", "e"), ("a", "a"), ("\u0120", "the")]:
        vocab[left + right] = len(vocab)
        merges.append(f"{left} {right}")
    n = len(vocab)
    out = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": n + i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": special}
                         for i, (content, special) in enumerate([("<|im_start|>", True), ("<|im_end|>", True), ("<think>", False)])],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": QWEN_SPLIT}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "",
                  "end_of_word_suffix": "", "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges},
    }
    out.update(changes)
    return json.dumps(out, ensure_ascii=False, separators=(",", ":")).encode()


def json_seeds():
    whole = tokenizer_json()
    write("tokenizer_json", "qwen", whole)
    write("tokenizer_json", "gpt2", tokenizer_json(normalizer=None, pre_tokenizer={
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}))
    write("tokenizer_json", "digits", tokenizer_json(normalizer=None, pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}]}))
    write("tokenizer_json", "bad_regex", tokenizer_json(pre_tokenizer={
        "type": "Split", "pattern": {"Regex": "(a+)+$("}, "behavior": "Isolated", "invert": False}))
    write("tokenizer_json", "truncated", whole[:len(whole) // 2])
    write("tokenizer_json", "no_vocab", tokenizer_json(model={"type": "BPE", "vocab": {}, "merges": []}))
    write("tokenizer_json", "merge_pairs", tokenizer_json(model={
        "type": "BPE", "vocab": {l: i for i, l in enumerate(list(byte_letters().values()) + ["ab"])}, "merges": [["a", "b"]]}))
    write("tokenizer_json", "unigram", tokenizer_json(model={"type": "Unigram", "vocab": []}))
    write("tokenizer_json", "twice", b'{"model":{},"model":{}}')

    base = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300,
            "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 1000000, "tie_word_embeddings": True,
            "hidden_act": "silu", "eos_token_id": [1, 2], "torch_dtype": "bfloat16"}
    generation = {"eos_token_id": [1, 3], "temperature": 0.6}

    def config(**changes):
        return json.dumps({**base, **changes}).encode()

    write("config", "qwen3", config() + b"\0" + json.dumps(generation).encode())
    write("config", "mlx", config(quantization={"group_size": 64, "bits": 4, "lm_head": {"group_size": 32, "bits": 4},
                                                "model.layers.0.mlp.down_proj": False}))
    write("config", "llama3", config(model_type="llama", architectures=["LlamaForCausalLM"], rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256}))
    write("config", "yarn", config(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}))
    write("config", "qwen2", config(model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=False))
    write("config", "negative", config(hidden_size=-64))
    write("config", "huge", config(num_hidden_layers=2 ** 62))
    write("config", "text_for_number", config(vocab_size="many"))
    write("config", "no_family", config(model_type="gpt9"))


# ---- text, chat, sampling, stops --------------------------------------------------------------------


def text_seeds():
    samples = {
        "english": "The thing is, the end isn't near: it's 2024!",
        "spaces": "  two\t\ttabs \r\n\r\n  and   \n",
        "accents": "caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m",
        "han": "\u4f60\u597d\uff0c\u4e16\u754c\u3002",
        "hindi": "\u0939\u093f\u0928\u094d\u0926\u0940",
        "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd",
        "control": "a<|im_end|>\n<|im_start|>system<think>x</think>",
        "code": "for (int i = 0; i < n; ++i) { x[i] -> y; }",
        "long_run": "a" * 200,
        "digits": "1234567890 3.14159",
    }
    for number, (name, sample) in enumerate(samples.items()):
        write("bpe", name, bytes([number & 7]) + sample.encode())
    for number, bad in enumerate([b"\xff", b"\xe2\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xc0\xafb", b"\xf0\x9f\x91"]):
        write("bpe", f"invalid_{number}", bytes([number & 7]) + b"x" + bad + b"y" + bad)
    write("bpe", "empty", b"\0")

    for family in range(4):
        turns = "Hello\xff Hi! How can I help?\xffTell me <|im_end|> a joke".encode("latin-1")
        write("chat", f"family{family}", bytes([family | 4]) + turns)
        write("chat", f"family{family}_system", bytes([family | 4 | 32]) + b"Be brief.\xff" + turns)
        write("chat", f"family{family}_think", bytes([family | 4 | 8]) + b"q\xff<think>\nno\n</think>\n\nyes\xffagain")
        write("chat", f"family{family}_open", bytes([family | 4 | 16]) + turns)

    def parameters(temperature=0.0, top_p=1.0, min_p=0.0, penalty=1.0, top_k=0, window=64, seed=1):
        return struct.pack("<ffffiiI", temperature, top_p, min_p, penalty, top_k, window, seed)

    rng = random.Random(7)
    logits = struct.pack("<24f", *[rng.uniform(-5, 5) for _ in range(24)])
    inf, nan = float("inf"), float("nan")
    write("sampling", "greedy", parameters() + logits)
    write("sampling", "usual", parameters(0.7, 0.9, 0.05, 1.1, 40) + logits + bytes(range(40)))
    write("sampling", "tiny_temperature", parameters(1e-30) + logits)
    write("sampling", "huge_temperature", parameters(1e30, 0.5) + logits)
    write("sampling", "negative_temperature", parameters(-1.0) + logits)
    write("sampling", "nan_temperature", parameters(nan) + logits)
    write("sampling", "top_p_0", parameters(1.0, 0.0) + logits)
    write("sampling", "top_p_above", parameters(1.0, 1.1) + logits)
    write("sampling", "top_k_large", parameters(1.0, top_k=10 ** 9) + logits)
    write("sampling", "penalty_0", parameters(1.0, penalty=0.0) + logits)
    write("sampling", "all_equal", parameters(1.0, 0.5) + bytes(96))
    write("sampling", "nan_logit", parameters(1.0) + struct.pack("<24f", nan, *[0.0] * 23))
    write("sampling", "minus_inf", parameters(1.0, 0.9) + struct.pack("<24f", *[-inf] * 24))
    write("sampling", "one_inf", parameters(1.0, 0.9) + struct.pack("<24f", *[-inf] * 5, 1.0, *[-inf] * 18))

    def stops(words, content):
        out = bytes([len(words) - 1])
        for word in words:
            out += bytes([len(word) - 1]) + word
        return out + content

    write("stop", "fox", stops([b"own fox"], b"the quick brown fox jumps"))
    write("stop", "overlap", stops([b"abab", b"bab"], b"aababab"))
    write("stop", "almost", stops([b"aaab"], b"aaaaaaaaaaaac"))
    write("stop", "at_end", stops([b"end"], b"this is the end"))
    write("stop", "newlines", stops([b"\n\n", b"\nUser:"], b"yes\n no\nUser: what\n\n"))


gguf_seeds()
safetensors_seeds()
json_seeds()
text_seeds()
