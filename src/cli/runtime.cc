#include "cli/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/log.h"
#include "cli/vocabulary_from_gguf.h"
#include "device/cpu_device.h"
#include "kernels/ops.h"
#include "model/model.h"
#include "os/cpu.h"
#include "os/memory.h"
#include "text/hf_tokenizer.h"

namespace tandem {
namespace {

// A pool that cannot hold this many tokens of one sequence is of no use to anybody.
constexpr int32_t kLeastContext = 512;
// Of the memory that weights and activations leave, for the KV cache when no flag says more: the
// rest is for files that the system caches and for other programs.
constexpr double kKvShareOfRest = 0.5;
// Rows of logits that are computed at once; a step with more takes turns.
constexpr int32_t kMaxLogitRows = 32;

std::string NameFromPath(const std::string& path) {
  std::string name = path;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  name = name.substr(name.find_last_of('/') + 1);
  if (name.size() > 5 && name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

// A file that need not be there is empty.
Result<std::string> OptionalText(const HfFolder& folder, std::string_view name) {
  Result<std::string> text = folder.ReadText(RealFileSystem(), name, kMaxTokenizerConfigBytes);
  if (!text.ok() && text.status().code() == StatusCode::kNotFound) return std::string();
  return text;
}

Result<Vocabulary> VocabularyFromFolder(const HfFolder& folder) {
  TANDEM_ASSIGN_OR_RETURN(
      const std::string tokenizer,
      folder.ReadText(RealFileSystem(), "tokenizer.json", kMaxTokenizerJsonBytes));
  TANDEM_ASSIGN_OR_RETURN(const std::string config, OptionalText(folder, "tokenizer_config.json"));
  TANDEM_ASSIGN_OR_RETURN(const std::string chat, OptionalText(folder, "chat_template.jinja"));
  return VocabularyFromHf({tokenizer, config, folder.generation_config(), chat});
}

}  // namespace

Result<std::string> ModelPath(const ModelOptions& options) {
  if (!options.model_path.empty()) return options.model_path;
  const char* path = std::getenv("TANDEM_DEFAULT_MODEL");
  if (path != nullptr && *path != '\0') return std::string(path);
  return InvalidArgumentError(
      "no model: name one with -m FILE.gguf or -m FOLDER, or use ./run, which fetches a default");
}

Result<Vocabulary> VocabularyOf(const ModelSource& source) {
  if (source.gguf() != nullptr) return VocabularyFromGguf(*source.gguf());
  return VocabularyFromFolder(*source.folder());
}

Result<std::unique_ptr<Runtime>> Runtime::Create(const ModelOptions& options,
                                                 const LoadProgress& progress,
                                                 const HandoffOptions& handoff) {
  TANDEM_RETURN_IF_ERROR(CheckCpuIsa());
  std::unique_ptr<Runtime> runtime(new Runtime);
  TANDEM_ASSIGN_OR_RETURN(const std::string path, ModelPath(options));
  runtime->model_name_ = NameFromPath(path);
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<ModelSource> source,
                          ModelSource::Open(RealFileSystem(), path));
  TANDEM_RETURN_IF_ERROR(runtime->LoadText(*source).WithContext(path));
  TANDEM_RETURN_IF_ERROR(runtime->LoadChatTemplate(path, options.chat_template_path));
  TANDEM_RETURN_IF_ERROR(runtime->LoadWeights(*source, options, progress).WithContext(path));
  if (handoff.fetches()) runtime->max_fetches_ = options.max_seqs;
  TANDEM_RETURN_IF_ERROR(runtime->PlanMemory(options));
  TANDEM_RETURN_IF_ERROR(runtime->Start(options, handoff));
  return runtime;
}

Runtime::~Runtime() {
  if (handoff_ != nullptr) handoff_->Stop();
}

Status Runtime::LoadText(const ModelSource& source) {
  TANDEM_ASSIGN_OR_RETURN(Vocabulary vocabulary, VocabularyOf(source));
  if (const HfFolder* folder = source.folder()) {
    TANDEM_ASSIGN_OR_RETURN(generation_,
                            ReadGenerationDefaults(folder->generation_config(), folder->config()));
  }
  TANDEM_ASSIGN_OR_RETURN(tokenizer_, Tokenizer::Create(std::move(vocabulary)));
  return OkStatus();
}

Status Runtime::LoadChatTemplate(const std::string& model_path, const std::string& file) {
  const Vocabulary& vocabulary = tokenizer_->vocabulary();
  std::string text = vocabulary.chat_template;
  if (!file.empty()) {
    TANDEM_ASSIGN_OR_RETURN(text, ReadSmallFile(RealFileSystem(), file, jinja::kMaxTemplateBytes));
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
      return InvalidArgumentError("{}: the chat template is empty", file);
    }
  }
  if (text.empty()) return OkStatus();
  const auto text_of = [&](std::optional<TokenId> id) {
    return id.has_value() && static_cast<size_t>(id->value()) < vocabulary.tokens.size()
               ? vocabulary.tokens[static_cast<size_t>(id->value())]
               : std::string();
  };
  auto chat = ChatTemplate::Create(text, text_of(vocabulary.bos), text_of(vocabulary.eos));
  if (!chat.ok()) {
    return chat.status().WithContext(
        file.empty() ? model_path + ": the chat template (--chat-template FILE takes its place)"
                     : file);
  }
  chat_template_ = std::make_shared<const ChatTemplate>(std::move(*chat));
  chat_template_source_ = std::move(text);
  return OkStatus();
}

Status Runtime::LoadWeights(ModelSource& source, const ModelOptions& options,
                            const LoadProgress& progress) {
  WeightsOptions weights;
  weights.use_cache = !options.no_cache;
  weights.progress = progress;
  if (weights.use_cache) {
    weights.cache_dir = options.cache_dir;
    if (weights.cache_dir.empty()) {
      TANDEM_ASSIGN_OR_RETURN(weights.cache_dir, UserCacheDir());
    }
  }
  TANDEM_RETURN_IF_ERROR(source.Identify(weights.cache_dir, progress));
  spec_ = source.spec();
  if (static_cast<size_t>(spec_.vocab_size) < tokenizer_->vocab_size()) {
    return InvalidArgumentError("the tokenizer has {} tokens, the model's output {}",
                                tokenizer_->vocab_size(), spec_.vocab_size);
  }
  if (source.folder() != nullptr) {  // whose configuration does not know it
    spec_.tokenizer_size = static_cast<int32_t>(tokenizer_->vocab_size());
  }
  for (int32_t rank = 0; rank < options.tensor_parallel; ++rank) {
    weights.shard = {rank, options.tensor_parallel};
    TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<ModelWeights> loaded,
                            ModelWeights::Open(RealFileSystem(), source, weights));
    weights_.push_back(std::move(loaded));
  }
  return OkStatus();
}

namespace {

// Policies other than chunked run whole prompts, of as many requests as there are places.
int32_t MaxStepTokens(const ModelOptions& options, int32_t max_context) {
  constexpr int64_t kMost = 1 << 24;
  if (options.policy == "chunked") return std::max(options.token_budget, options.max_seqs);
  return static_cast<int32_t>(std::min(kMost, int64_t{options.max_seqs} * max_context));
}

}  // namespace

Status Runtime::PlanMemory(const ModelOptions& options) {
  TANDEM_ASSIGN_OR_RETURN(shape_.numerics, NumericsFromName(options.numerics, options.kv_type));
  memory_.kv_type = NameOfKvType(shape_.numerics.kv);
  num_threads_ = options.threads > 0 ? options.threads : NumUsableProcessors();
  shape_.spec = spec_;
  shape_.tokens_per_block = options.block_tokens;
  shape_.num_slots = options.max_seqs + max_fetches_;
  shape_.max_context = options.context_size > 0
                           ? std::min(options.context_size, spec_.context_length)
                           : spec_.context_length;
  shape_.max_in_flight = 2;  // pipeline depth 1
  shape_.num_threads = std::max(1, num_threads_ / options.tensor_parallel);
  shape_.slab = {options.slab_tokens, kMaxLogitRows, MaxStepTokens(options, shape_.max_context)};

  if (options.memory.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const MemoryInfo info, ReadMemoryInfo());
    memory_.limit = info.limit_bytes;
  } else {
    TANDEM_ASSIGN_OR_RETURN(memory_.limit, ParseBytes(options.memory));
  }
  memory_.runtime = kProcessBytes;
  std::vector<StateGroup> all_groups;  // of every rank: blocks are counted once, bytes on each
  for (int32_t rank = 0; rank < options.tensor_parallel; ++rank) {
    const Shard shard{rank, options.tensor_parallel};
    const ModelWeights& weights = *weights_[static_cast<size_t>(rank)];
    TANDEM_ASSIGN_OR_RETURN(
        const auto groups, MakeStateGroups(spec_, shape_.numerics, shape_.tokens_per_block, shard));
    TANDEM_ASSIGN_OR_RETURN(const auto model, MakeModel(spec_, weights, shape_.numerics, shard));
    shape_.num_blocks.assign(groups.size(), 0);
    const RankBytes bytes = BytesOfRank(shape_, *model, groups);
    memory_.weights += weights.resident_bytes();
    memory_.activations += bytes.activations;
    memory_.runtime += bytes.runtime;
    all_groups.insert(all_groups.end(), groups.begin(), groups.end());
  }
  TANDEM_RETURN_IF_ERROR(memory_.Check());

  int64_t kv_bytes = 0;
  if (options.kv_memory.empty()) {
    kv_bytes =
        static_cast<int64_t>(kKvShareOfRest * static_cast<double>(memory_.limit - memory_.total()));
  } else {
    TANDEM_ASSIGN_OR_RETURN(kv_bytes, ParseBytes(options.kv_memory));
  }
  // All ranks have the same groups, so a block of the model takes the same bytes on each.
  TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> blocks,
                          ChooseBlocks(all_groups, kv_bytes, options.max_seqs, shape_.max_context,
                                       std::min(shape_.max_context, kLeastContext)));
  shape_.num_blocks.assign(blocks.begin(),
                           blocks.begin() + static_cast<int64_t>(shape_.num_blocks.size()));
  for (size_t i = 0; i < all_groups.size(); ++i) {
    memory_.kv += all_groups[i].BlockBytes() * shape_.num_blocks[i % shape_.num_blocks.size()];
  }
  return memory_.Check();
}

Status Runtime::Start(const ModelOptions& options, const HandoffOptions& handoff) {
  std::vector<Device*> devices;
  for (int32_t rank = 0; rank < options.tensor_parallel; ++rank) {
    devices_.push_back(MakeCpuDevice({shape_.num_threads, {}}));
    devices.push_back(devices_.back().get());
  }
  if (options.tensor_parallel > 1) {
    TANDEM_ASSIGN_OR_RETURN(
        group_,
        InProcessGroup::Create(devices, int64_t{shape_.slab.max_tokens} * spec_.hidden_dim));
  }
  std::vector<RankConfig> ranks;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    Communicator* communicator = &single_rank_;
    if (group_ != nullptr) communicator = group_->communicator(static_cast<int32_t>(rank));
    ranks.push_back({devices[rank], weights_[rank].get(), communicator});
  }
  TANDEM_ASSIGN_OR_RETURN(executor_, DeviceExecutor::Create(ranks, shape_));

  TANDEM_ASSIGN_OR_RETURN(const auto groups,
                          MakeStateGroups(spec_, shape_.numerics, shape_.tokens_per_block, {}));
  EngineConfig config;
  for (size_t g = 0; g < groups.size(); ++g)
    config.groups.push_back({groups[g], shape_.num_blocks[g]});
  config.context_length = shape_.max_context;
  config.vocab_size = spec_.vocab_size;
  config.pipeline_depth = shape_.max_in_flight - 1;
  config.max_running = options.max_seqs;
  config.token_budget = std::max(options.token_budget, options.max_seqs);
  config.chunk_tokens = options.chunk_tokens;
  config.reserve_tokens = options.reserve_tokens;
  config.max_queue = options.max_queue;
  TANDEM_ASSIGN_OR_RETURN(config.policy, PolicyFromName(options.policy));
  TANDEM_ASSIGN_OR_RETURN(config.reservation, ReservationFromName(options.reservation));
  TANDEM_ASSIGN_OR_RETURN(config.preemption, PreemptionRuleFromName(options.preemption));
  config.itl_target = static_cast<TimeNs>(options.itl_target_ms * kNsPerMs);
  if (options.prefix_cache != "off") config.prefix_cache = Caching(options, groups);
  config.fetch.max_fetches = max_fetches_;
  config.fetch.min_tokens = handoff.min_tokens;
  StepExecutor* executor = executor_.get();
  EventRecorder* recorder = nullptr;
  if (!options.record_path.empty()) {
    TANDEM_ASSIGN_OR_RETURN(record_, EventLogFile::Create(RealFileSystem(), options.record_path,
                                                          LogHeaderOf(options, config), executor));
    executor = record_->executor();
    recorder = record_->recorder();
  }
  if (handoff.any()) TANDEM_RETURN_IF_ERROR(StartHandoff(handoff, groups));
  HandoffPort* const port = handoff_ != nullptr ? &handoff_->port() : nullptr;
  TANDEM_ASSIGN_OR_RETURN(host_, EngineHost::Create(config, executor, &clock_, recorder, port));
  if (handoff_ != nullptr) {
    handoff_->Start(host_.get(), [this](HandoffEvent event) { host_->Deliver(std::move(event)); });
  }
  return CountCost(groups);
}

Status Runtime::StartHandoff(const HandoffOptions& handoff, std::span<const StateGroup> groups) {
  HandoffFormat format;
  format.model = model_name_;
  format.identity = spec_.identity;
  format.numerics = std::string(NameOf(shape_.numerics));
  format.groups.assign(groups.begin(), groups.end());
  std::vector<std::span<std::byte>> pools;
  for (size_t g = 0; g < groups.size(); ++g) {
    pools.push_back(executor_->state(0, GroupId(static_cast<int32_t>(g))));
  }
  if (handoff.sends()) executor_->SetLayerCounter(&layers_);
  TANDEM_ASSIGN_OR_RETURN(handoff_, HandoffNode::Create(handoff, std::move(format),
                                                        std::move(pools), &layers_, &clock_));
  return OkStatus();
}

LogHeader Runtime::LogHeaderOf(const ModelOptions& options, const EngineConfig& config) const {
  return {.version = TANDEM_VERSION,
          .model = model_name_,
          .model_identity = spec_.identity,
          .numerics = std::string(NameOf(shape_.numerics)),
          .true_tokens = options.record_tokens,
          .config = config};
}

PrefixCaching Runtime::Caching(const ModelOptions& options,
                               std::span<const StateGroup> groups) const {
  // Everything that decides what bytes stand in a block: numerics, and the layout of the groups.
  Hasher format;
  format.Update(NameOf(shape_.numerics));
  for (const StateGroup& group : groups) {
    format.Update(static_cast<uint64_t>(group.tokens_per_block));
    format.Update(static_cast<uint64_t>(group.BlockBytes()));
  }
  std::random_device random;
  const auto draw = [&random] { return uint64_t{random()} << 32 | random(); };
  return {.identity = {.model = spec_.identity, .state_format = format.Digest()},
          .retention = options.prefix_cache == "lru" ? RetentionKind::kLru : RetentionKind::kValue,
          .key = {draw(), draw()}};
}

Status Runtime::CountCost(std::span<const StateGroup> groups) {
  TANDEM_ASSIGN_OR_RETURN(
      const PackedMatrix output,
      weights_[0]->Matrix(spec_.tied_embeddings ? "token_embd.weight" : "output.weight"));
  const int64_t output_bytes = PackedBytes(output.dtype, output.rows, output.cols);
  TANDEM_ASSIGN_OR_RETURN(const PackedMatrix embedding, weights_[0]->Matrix("token_embd.weight"));
  const int64_t embedding_bytes =
      spec_.tied_embeddings ? 0 : PackedBytes(embedding.dtype, embedding.rows, embedding.cols);
  int64_t all_bytes = 0;
  for (const auto& weights : weights_) all_bytes += weights->resident_bytes();
  const auto copies = static_cast<int64_t>(weights_.size());  // each rank holds these whole
  cost_ = CostOfModel(spec_, groups, all_bytes - copies * (output_bytes + embedding_bytes),
                      copies * output_bytes);
  return OkStatus();
}

std::vector<TokenId> Runtime::StopTokens() const {
  std::vector<TokenId> tokens = tokenizer_->vocabulary().more_end_tokens;
  if (tokenizer_->eos().has_value()) tokens.push_back(*tokenizer_->eos());
  for (const int32_t id : generation_.eos) tokens.push_back(TokenId(id));
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

}  // namespace tandem
