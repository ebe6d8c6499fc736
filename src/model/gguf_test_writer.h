// What: for tests: GgufTestWriter builds GGUF files in memory, right or wrong, and remembers where
//   each field lies so that a test can damage it.
// Not here: writing models for users.
// Threads: one.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/gguf.h"

namespace tandem {

class GgufTestWriter {
 public:
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the layout; the key is added by AddInt

  // `raw` is the value as it lies in the file, without its type.
  void Add(std::string key, GgufValueType type, std::string raw) {
    entries_.push_back({std::move(key), static_cast<uint32_t>(type), std::move(raw)});
  }
  void AddInt(std::string key, uint32_t value) {
    Add(std::move(key), GgufValueType::kU32, Raw(value));
  }
  void AddFloat(std::string key, float value) {
    Add(std::move(key), GgufValueType::kF32, Raw(value));
  }
  void AddBool(std::string key, bool value) {
    Add(std::move(key), GgufValueType::kBool, Raw(static_cast<uint8_t>(value)));
  }
  void AddString(std::string key, std::string_view value) {
    Add(std::move(key), GgufValueType::kString, RawString(value));
  }
  // An array of elements as they lie in the file.
  void AddArray(std::string key, GgufValueType element, uint64_t count, std::string_view raw) {
    Add(std::move(key), GgufValueType::kArray,
        Raw(static_cast<uint32_t>(element)) + Raw(count) + std::string(raw));
  }
  // `dims` innermost first.
  void AddTensor(std::string name, std::vector<uint64_t> dims, uint32_t type, std::string data) {
    tensors_.push_back({std::move(name), std::move(dims), type, std::move(data)});
  }

  // Metadata: changes the value of `key`, or adds it.
  void Replace(const std::string& key, GgufValueType type, std::string raw) {
    for (Entry& e : entries_) {
      if (e.key != key) continue;
      e.type = static_cast<uint32_t>(type);
      e.raw = std::move(raw);
      return;
    }
    Add(key, type, std::move(raw));
  }
  // The metadata entry and the tensor of this name.
  void Remove(const std::string& name) {
    std::erase_if(entries_, [&](const Entry& e) { return e.key == name; });
    std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
  }

  std::string Build() {
    marks_.clear();
    std::string out;
    const auto put = [&](std::string mark, std::string_view raw) {
      marks_[std::move(mark)] = out.size();
      out += raw;
    };
    put("magic", Raw(magic));
    put("version", Raw(version));
    put("tensor_count", Raw(uint64_t{tensors_.size()}));
    put("kv_count", Raw(uint64_t{entries_.size()}));
    for (const Entry& e : entries_) {
      put(e.key + "/length", Raw(uint64_t{e.key.size()}));
      put(e.key + "/key", e.key);
      put(e.key + "/type", Raw(e.type));
      put(e.key, e.raw);
    }
    uint64_t offset = 0;
    for (const Tensor& t : tensors_) {
      put(t.name + "/length", Raw(uint64_t{t.name.size()}));
      put(t.name + "/name", t.name);
      put(t.name + "/n_dims", Raw(static_cast<uint32_t>(t.dims.size())));
      std::string dims;
      for (const uint64_t d : t.dims) dims += Raw(d);
      put(t.name + "/dims", dims);
      put(t.name + "/type", Raw(t.type));
      put(t.name + "/offset", Raw(offset));
      offset = AlignUp(offset + t.data.size());
    }
    marks_["header_end"] = out.size();
    for (const Tensor& t : tensors_) {
      out.resize(AlignUp(out.size()));
      put(t.name + "/data", t.data);
    }
    return out;
  }

  // Where a field of the last Build lies: "version", "KEY" (its value), "KEY/type", "TENSOR/dims",
  // ...
  size_t At(const std::string& mark) const {
    const auto it = marks_.find(mark);
    TANDEM_CHECK(it != marks_.end());
    return it->second;
  }

  template <typename T>
  static std::string Raw(T value) {
    std::string raw(sizeof value, '\0');
    std::memcpy(raw.data(), &value, sizeof value);
    return raw;
  }
  static std::string RawString(std::string_view text) {
    return Raw(uint64_t{text.size()}) + std::string(text);
  }
  template <typename T>
  static void Patch(std::string& file, size_t at, T value) {
    TANDEM_CHECK_LE(at + sizeof value, file.size());
    std::memcpy(file.data() + at, &value, sizeof value);
  }

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::string raw;
  };
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::string data;
  };
  uint64_t AlignUp(uint64_t v) const { return (v + alignment - 1) / alignment * alignment; }

  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t> marks_;
};

}  // namespace tandem
