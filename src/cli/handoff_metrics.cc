#include "cli/handoff_metrics.h"

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {
namespace {

struct Labelled {
  std::string_view value;
  double number;
};

class Metrics {
 public:
  void Counter(std::string_view name, double value, std::string_view help) {
    Add(name, true, value, help, "");
  }
  void Gauge(std::string_view name, double value, std::string_view help) {
    Add(name, false, value, help, "");
  }
  void Each(std::string_view name, bool is_counter, std::string_view help, std::string_view label,
            std::initializer_list<Labelled> values) {
    for (const Labelled& one : values) {
      Add(name, is_counter, one.number, help, fmt::format(",{}=\"{}\"", label, one.value));
    }
  }
  std::vector<ExtraMetric> Take() { return std::move(metrics_); }

 private:
  void Add(std::string_view name, bool is_counter, double value, std::string_view help,
           std::string labels) {
    metrics_.push_back({fmt::format("tandem:handoff_{}", name), is_counter, std::string(help),
                        value, std::move(labels)});
  }

  std::vector<ExtraMetric> metrics_;
};

double Number(int64_t count) { return static_cast<double>(count); }
double Seconds(TimeNs ns) { return static_cast<double>(ns) / static_cast<double>(kNsPerS); }

void AddFetches(const MessengerStats& m, const HandoffStats& engine, Metrics& out) {
  out.Each("fetches_total", true, "Prompts whose state was asked of a prefill node.", "result",
           {{"arrived", Number(m.fetches_arrived)},
            {"failed", Number(m.fetches_failed)},
            {"cancelled", Number(m.fetches_cancelled)}});
  out.Counter("fetch_seconds_total", Seconds(m.fetch_ns),
              "From the order to the arrival, of fetches that arrived.");
  out.Counter("fetches_elsewhere_total", Number(m.fetches_elsewhere),
              "Fetches after one of the same request had failed at another node.");
  out.Counter("fallbacks_total", Number(engine.fallbacks),
              "Requests computed here after a fetch had failed.");
  out.Counter("fetched_tokens_total", Number(engine.fetched_tokens),
              "Prompt tokens whose state came from a prefill node.");
  out.Counter("pages_expected_total", Number(m.pages_expected), "Pages announced for fetches.");
}

void AddSends(const MessengerStats& m, Metrics& out) {
  out.Each("sends_total", true, "Prompts computed for decode nodes.", "result",
           {{"done", Number(m.sends_done)},
            {"failed", Number(m.sends_failed)},
            {"cancelled", Number(m.sends_cancelled)}});
  out.Counter("chunks_total", Number(m.chunks), "Chunks of these.");
  out.Counter("writes_total", Number(m.writes), "Transfers of these.");
  out.Each("transfer_seconds_total", true,
           "Time of finished sends in which a write was on its way: while layers were still to be "
           "computed, and after the last.",
           "part", {{"hidden", Seconds(m.hidden_ns)}, {"visible", Seconds(m.visible_ns)}});
}

void AddNetwork(const MessengerStats& m, Metrics& out) {
  out.Each("pages_total", true, "Pages moved.", "direction",
           {{"in", Number(m.pages_arrived)}, {"out", Number(m.pages_written)}});
  out.Each("bytes_total", true, "Bytes of these.", "direction",
           {{"in", Number(m.bytes_arrived)}, {"out", Number(m.bytes_written)}});
  out.Each(
      "expectations_total", true, "Announced sets of pages, by how they ended.", "result",
      {{"met", Number(m.fabric.expectations_met)}, {"late", Number(m.fabric.expectations_late)}});
  out.Each("immediates_total", true, "Pages that no expectation waited for.", "kind",
           {{"stale", Number(m.fabric.immediates_stale)},
            {"duplicate", Number(m.fabric.immediates_duplicate)},
            {"unknown", Number(m.fabric.immediates_unknown)}});
  out.Counter("retries_total", Number(m.fabric.retries), "Writes that the network put off.");
}

void AddTrouble(const HandoffCounts& counts, Metrics& out) {
  const MessengerStats& m = counts.messenger;
  out.Gauge("quarantined_blocks", m.quarantined_blocks_now,
            "Blocks that nobody uses and that may still be written.");
  out.Counter("fences_total", Number(m.fences),
              "Regions closed because a peer did not confirm, or was lost.");
  out.Counter("links_lost_total", Number(m.links_lost), "Connections that broke.");
  out.Counter("heartbeats_missed_total", Number(m.heartbeats_missed),
              "Peers given up for silence.");
  out.Each("refused_total", true, "Peers refused.", "reason",
           {{"key", Number(counts.control.handshakes_failed)},
            {"format", Number(m.links_refused)},
            {"protocol", Number(m.protocol_errors)}});
}

}  // namespace

std::vector<ExtraMetric> HandoffMetrics(const HandoffCounts& counts, const HandoffStats& engine) {
  const MessengerStats& m = counts.messenger;
  Metrics out;
  AddFetches(m, engine, out);
  AddSends(m, out);
  AddNetwork(m, out);
  AddTrouble(counts, out);
  out.Each("peers", false, "Peers by state.", "state",
           {{"waiting", Number(m.nodes_waiting_now)},
            {"connecting", Number(m.nodes_connecting_now)},
            {"ready", Number(m.nodes_ready_now)},
            {"leaving", Number(m.nodes_leaving_now)},
            {"decode", Number(m.decode_peers_now)}});
  out.Each("requests", false, "Requests by state; open: hand-offs whose blocks may be touched.",
           "state",
           {{"awaiting_kv", Number(engine.requests_awaiting_kv)},
            {"sending", Number(engine.requests_sending)},
            {"open", Number(engine.open)}});
  return out.Take();
}

}  // namespace tandem
