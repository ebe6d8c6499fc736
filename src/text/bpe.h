// What: BpeMerger: byte-pair encoding of one piece: joins the pair of lowest rank, left-most first,
//   until no pair has a rank.
// Not here: cutting text into pieces (pretokenizer.h), special tokens.
// Threads: immutable after Create; the Scratch belongs to one thread.
// Cost: n log n in the piece, with a queue of pairs; 12 bytes per merge.
// Based on: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units" (2016);
//   the order of ties is that of Hugging Face's `tokenizers`. Kudo and Richardson, "SentencePiece"
//   (2018), for ranks by score.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/token_index.h"
#include "text/vocab.h"

namespace tandem {

class BpeMerger {
 public:
  // Reusable memory of Merge; grows to the longest piece seen.
  class Scratch {
   public:
    // The piece's symbols, one per character or byte, to be filled in before Merge.
    std::vector<int32_t> symbols;

   private:
    friend class BpeMerger;
    struct Node {
      int32_t token = 0;
      int32_t previous = 0;
      int32_t next = 0;
    };
    std::vector<Node> nodes;
    // A heap of pairs that have a rank: rank in the upper half, index of the left node in the
    // lower.
    std::vector<uint64_t> queue;
  };

  // Longest token that CreateFromScores takes for the result of a merge.
  static constexpr size_t kMaxScoredBytes = 1024;

  // `merges` as Vocabulary::merges: each is two tokens with one space between, whose concatenation
  // is a token too; the rank is the place in the list. INVALID_ARGUMENT names the first merge that
  // is not, or that repeats a pair. `index` is used during the call only.
  static Result<BpeMerger> Create(const std::vector<std::string>& merges, const TokenIndex& index,
                                  size_t vocab_size);

  // Every two normal tokens whose concatenation is a normal token too; the highest score merges
  // first, equal scores from the left. OUT_OF_RANGE beyond kMaxMerges pairs; INVALID_ARGUMENT for a
  // score that is no number. Requires a valid vocabulary with scores. Cost: a look-up per character
  // of the vocabulary.
  static Result<BpeMerger> CreateFromScores(const Vocabulary& vocabulary, const TokenIndex& index);

  // Merges scratch.symbols (token ids of this vocabulary, fewer than 2^31) and appends the result.
  void Merge(Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Resolved {
    int32_t left = 0;
    int32_t right = 0;
    int32_t rank = 0;
    int32_t token = 0;
  };
  struct Rule {
    int32_t right = 0;
    int32_t rank = 0;
    int32_t token = 0;
  };
  // Sorts; names ranks that are the same pair.
  static Result<BpeMerger> FromMerges(std::vector<Resolved> merges, size_t vocab_size);
  // Null where the pair has no rule.
  const Rule* FindRule(int32_t left, int32_t right) const;
  // Queues the pair whose left node this is, if it has a rank; the heap is up to the caller.
  bool QueuePair(Scratch& scratch, int32_t left) const;

  // Rules with left token t: rules_[first_rule_[t] .. first_rule_[t + 1]), ordered by right token.
  std::vector<int32_t> first_rule_;
  std::vector<Rule> rules_;
};

}  // namespace tandem
