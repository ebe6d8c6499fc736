// What: for tests: a small model of any family with random weights as a GGUF file in memory.
// Not here: models with known answers (tests/golden).
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/gguf_test_writer.h"
#include "tensor/block_quant.h"

namespace tandem {

struct TestModelOptions {
  std::string architecture = "llama";
  uint32_t layers = 2;
  uint32_t hidden = 64;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t ffn = 128;
  uint32_t vocab = 40;
  bool tied = true;
  DType matrices = DType::kQ4_1;
  DType embedding = DType::kQ8_0;
  bool decoded = false;  // the values of these types, stored as F32
  uint64_t seed = 1;
};

inline uint32_t GgmlTypeOf(DType dtype) {
  for (const GgmlTypeInfo& type : AllGgmlTypes()) {
    if (type.dtype == dtype) return type.id;
  }
  return 0;
}

// `n` values around 0 in the given type.
inline std::string RandomTensor(SplitMix64& rng, DType dtype, uint64_t n) {
  std::vector<float> values(n);
  for (float& v : values) v = static_cast<float>(rng.NextDouble() - 0.5) * 0.2f;
  std::string out(static_cast<size_t>(BytesOf(dtype, static_cast<int64_t>(n))), '\0');
  QuantizeRow(dtype, values.data(), static_cast<int64_t>(n),
              reinterpret_cast<std::byte*>(out.data()));
  return out;
}

// The tensor's values as F32.
inline std::string DecodedTensor(DType dtype, const std::string& bytes, uint64_t n) {
  std::string out(n * sizeof(float), '\0');
  DequantizeRow(dtype, reinterpret_cast<const std::byte*>(bytes.data()), static_cast<int64_t>(n),
                reinterpret_cast<float*>(out.data()));
  return out;
}

// The writer, before Build, so that a test can add to it.
inline GgufTestWriter TestModelWriter(const TestModelOptions& o = {}) {
  GgufTestWriter w;
  const std::string& arch = o.architecture;
  w.AddString("general.architecture", arch);
  w.AddString("general.name", "Test");
  w.AddInt(arch + ".block_count", o.layers);
  w.AddInt(arch + ".context_length", 256);
  w.AddInt(arch + ".embedding_length", o.hidden);
  w.AddInt(arch + ".feed_forward_length", o.ffn);
  w.AddInt(arch + ".attention.head_count", o.heads);
  w.AddInt(arch + ".attention.head_count_kv", o.kv_heads);
  w.AddFloat(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  SplitMix64 rng(o.seed);
  const auto matrix = [&](std::string name, uint64_t rows, uint64_t cols, DType dtype) {
    std::string bytes = RandomTensor(rng, dtype, rows * cols);
    if (o.decoded) bytes = DecodedTensor(dtype, bytes, rows * cols);
    w.AddTensor(std::move(name), {cols, rows}, GgmlTypeOf(o.decoded ? DType::kF32 : dtype),
                std::move(bytes));
  };
  const auto vector_of = [&](std::string name, uint64_t length) {
    w.AddTensor(std::move(name), {length}, 0, RandomTensor(rng, DType::kF32, length));
  };
  const auto vector = [&](std::string name) { vector_of(std::move(name), o.hidden); };
  const uint64_t kv_dim = uint64_t{o.hidden} / o.heads * o.kv_heads;
  matrix("token_embd.weight", o.vocab, o.hidden, o.embedding);
  for (uint32_t layer = 0; layer < o.layers; ++layer) {
    const std::string blk = "blk." + std::to_string(layer) + ".";
    vector(blk + "attn_norm.weight");
    matrix(blk + "attn_q.weight", o.hidden, o.hidden, o.matrices);
    matrix(blk + "attn_k.weight", kv_dim, o.hidden, o.matrices);
    matrix(blk + "attn_v.weight", kv_dim, o.hidden, o.matrices);
    if (arch == "qwen2") {
      vector_of(blk + "attn_q.bias", o.hidden);
      vector_of(blk + "attn_k.bias", kv_dim);
      vector_of(blk + "attn_v.bias", kv_dim);
    }
    if (arch == "qwen3") {
      vector_of(blk + "attn_q_norm.weight", o.hidden / o.heads);
      vector_of(blk + "attn_k_norm.weight", o.hidden / o.heads);
    }
    matrix(blk + "attn_output.weight", o.hidden, o.hidden, o.matrices);
    vector(blk + "ffn_norm.weight");
    matrix(blk + "ffn_gate.weight", o.ffn, o.hidden, o.matrices);
    matrix(blk + "ffn_up.weight", o.ffn, o.hidden, o.matrices);
    matrix(blk + "ffn_down.weight", o.hidden, o.ffn, o.matrices);
  }
  vector("output_norm.weight");
  if (!o.tied) matrix("output.weight", o.vocab, o.hidden, o.embedding);
  return w;
}

inline std::string MakeTestModel(const TestModelOptions& options = {}) {
  return TestModelWriter(options).Build();
}

}  // namespace tandem
