// What: Runtime: a loaded model ready for requests: file, tokenizer, weights, devices, executor,
//   engine; built in dependency order from one set of options.
// Not here: HTTP and the terminal, which use it.
// Threads: Create and destruction on one thread; what the accessors return as their own headers
//   say.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/engine_host.h"
#include "cli/handoff_node.h"
#include "cli/options.h"
#include "cli/record.h"
#include "core/cost.h"
#include "exec/device_executor.h"
#include "exec/in_process_group.h"
#include "exec/memory_plan.h"
#include "model/hf_config.h"
#include "model/model_source.h"
#include "model/weights.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tandem {

// What -m or $TANDEM_DEFAULT_MODEL names. INVALID_ARGUMENT without either.
Result<std::string> ModelPath(const ModelOptions& options);
// The tokenizer of a GGUF file or of a folder's tokenizer.json.
Result<Vocabulary> VocabularyOf(const ModelSource& source);

class Runtime {
 public:
  // `progress` follows the packing of weights, which the first start of a model does. Errors name
  // the file or the flag.
  // With `handoff` it is a node among others.
  static Result<std::unique_ptr<Runtime>> Create(const ModelOptions& options,
                                                 const LoadProgress& progress,
                                                 const HandoffOptions& handoff = {});
  // Ends all hand-offs before the engine.
  ~Runtime();

  EngineHost& engine() { return *host_; }
  const Clock& clock() const { return clock_; }
  // Null when no state moves between this node and others.
  HandoffNode* handoff() { return handoff_.get(); }
  const ModelSpec& spec() const { return spec_; }
  Numerics numerics() const { return shape_.numerics; }
  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  // Of --chat-template, else the model's own; null when there is none.
  const std::shared_ptr<const ChatTemplate>& chat_template() const { return chat_template_; }
  // Its Jinja text; empty when there is none.
  const std::string& chat_template_source() const { return chat_template_source_; }
  const ModelCost& cost() const { return cost_; }
  const MemoryPlan& memory() const { return memory_; }
  // What the authors of a folder's model recommend; empty for a GGUF file.
  const GenerationDefaults& generation_defaults() const { return generation_; }
  int32_t num_threads() const { return num_threads_; }
  // The name of the file, without ending, or of the folder.
  const std::string& model_name() const { return model_name_; }
  // Ends of an answer: what the vocabulary and generation_config.json name.
  std::vector<TokenId> StopTokens() const;

 private:
  Runtime() = default;
  Status LoadText(const ModelSource& source);
  Status LoadChatTemplate(const std::string& model_path, const std::string& file);
  Status LoadWeights(ModelSource& source, const ModelOptions& options,
                     const LoadProgress& progress);
  Status PlanMemory(const ModelOptions& options);
  Status Start(const ModelOptions& options, const HandoffOptions& handoff);
  Status StartHandoff(const HandoffOptions& handoff, std::span<const StateGroup> groups);
  PrefixCaching Caching(const ModelOptions& options, std::span<const StateGroup> groups) const;
  LogHeader LogHeaderOf(const ModelOptions& options, const EngineConfig& config) const;
  Status CountCost(std::span<const StateGroup> groups);

  SteadyClock clock_;
  std::string model_name_;
  ModelSpec spec_;
  GenerationDefaults generation_;  // of a folder
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::string chat_template_source_;
  std::shared_ptr<const ChatTemplate> chat_template_;
  int32_t num_threads_ = 1;
  int32_t max_fetches_ = 0;  // requests that may wait for state from other nodes
  RankShape shape_;
  MemoryPlan memory_;
  ModelCost cost_;
  std::vector<std::unique_ptr<ModelWeights>> weights_;  // per rank
  std::vector<std::unique_ptr<Device>> devices_;        // per rank
  SingleRank single_rank_;
  std::unique_ptr<InProcessGroup> group_;  // with several ranks
  LayerCounter layers_;
  std::unique_ptr<DeviceExecutor> executor_;
  std::unique_ptr<EventLogFile> record_;  // with --record
  std::unique_ptr<HandoffNode> handoff_;  // of a node among others
  std::unique_ptr<EngineHost> host_;
};

}  // namespace tandem
