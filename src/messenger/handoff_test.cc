// The hand-off on the simulated network: one fact or one fault at a time.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "messenger/testing/cluster.h"
#include "messenger/testing/random_message.h"

namespace tandem::testing {
namespace {

class Handoff : public ::testing::Test {
 protected:
  void SetUp() override { SetLogLevel(LogLevel::kOff); }
  void TearDown() override { SetLogLevel(LogLevel::kInfo); }
};

void Pass(Cluster* cluster, TimeNs time) { cluster->world.RunUntil(cluster->world.now() + time); }

MessengerStats StatsOf(Cluster* cluster, SimNodeId node) {
  return cluster->At(node)->messenger().stats();
}

TEST_F(Handoff, StateArrivesWholeAndBothPoolsEmpty) {
  Cluster cluster(1);
  const SimNodeId prefill = cluster.Add(PrefillNode());
  const SimNodeId decode = cluster.Add(DecodeNode());
  Pass(&cluster, 10 * kNsPerMs);
  ASSERT_EQ(cluster.At(decode)->decoder()->ready_peers(), 1);
  for (int i = 0; i < 5; ++i) {
    cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 40 + i), "");
    Pass(&cluster, 20 * kNsPerMs);
  }
  EXPECT_EQ(cluster.Counts().arrived, 5);
  EXPECT_EQ(cluster.Counts().failed, 0);
  const MessengerStats here = StatsOf(&cluster, decode);
  const MessengerStats there = StatsOf(&cluster, prefill);
  EXPECT_GT(here.pages_expected, 5 * 3 * 10);
  EXPECT_EQ(here.pages_arrived, here.pages_expected);
  EXPECT_EQ(there.pages_written, here.pages_expected);
  EXPECT_EQ(there.bytes_written, here.bytes_arrived);
  EXPECT_EQ(there.sends_done, 5);
  cluster.CheckIdle();
}

// Blocks that cross chunk borders, and cached beginnings on both sides.
TEST_F(Handoff, EachPageIsWrittenOnceAtAnyChunkSize) {
  for (int32_t chunk = 1; chunk <= 20; ++chunk) {
    Cluster cluster(static_cast<uint64_t>(chunk));
    NodeOptions options = PrefillNode();
    options.prefill.chunk_most = chunk;
    const SimNodeId prefill = cluster.Add(options);
    const SimNodeId decode = cluster.Add(DecodeNode());
    Pass(&cluster, 10 * kNsPerMs);
    for (int i = 0; i < 6; ++i) {
      cluster.At(decode)->decoder()->Arrive(RandomPrompt(&cluster.world.random(), 60), "");
      Pass(&cluster, 10 * kNsPerMs);
    }
    Pass(&cluster, 50 * kNsPerMs);
    const MessengerStats here = StatsOf(&cluster, decode);
    EXPECT_EQ(cluster.Counts().failed, 0);
    EXPECT_EQ(StatsOf(&cluster, prefill).fabric.pieces_written, here.pages_expected);
    EXPECT_EQ(here.fabric.immediates_duplicate + here.fabric.immediates_stale, 0);
    cluster.CheckIdle();
  }
}

TEST_F(Handoff, LayersGoOutWhileLaterOnesCompute) {
  Cluster cluster(3);
  std::vector<LayerTiming> timings;
  NodeOptions options = PrefillNode();
  options.on_layer = [&](const LayerTiming& timing) { timings.push_back(timing); };
  options.prefill.chunk_most = 8;
  options.prefill.layer_least = 500 * kNsPerUs;
  options.prefill.layer_most = 600 * kNsPerUs;
  const SimNodeId prefill = cluster.Add(options);
  const SimNodeId decode = cluster.Add(DecodeNode());
  Pass(&cluster, 10 * kNsPerMs);
  cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 40), "");
  Pass(&cluster, 200 * kNsPerMs);
  ASSERT_EQ(cluster.Counts().arrived, 1);
  int32_t pages = 0;
  TimeNs last_ready = 0;
  for (const LayerTiming& timing : timings) {
    EXPECT_LE(timing.ready, timing.first_post);
    EXPECT_LT(timing.first_post, timing.last_done);
    EXPECT_LT(timing.last_done - timing.ready, 500 * kNsPerUs) << "a layer waits for the next one";
    pages += timing.pages;
    last_ready = std::max(last_ready, timing.ready);
  }
  const MessengerStats stats = StatsOf(&cluster, prefill);
  EXPECT_EQ(pages, stats.pages_written);
  EXPECT_GT(stats.hidden_ns, 5 * stats.visible_ns) << "only the last layer's pages can be seen";
  EXPECT_GT(stats.visible_ns, 0);
}

TEST_F(Handoff, TheNodeWithLeastToDoIsChosen) {
  Cluster cluster(4);
  const SimNodeId a = cluster.Add(PrefillNode());
  const SimNodeId b = cluster.Add(PrefillNode());
  const SimNodeId decode = cluster.Add(DecodeNode());
  Pass(&cluster, 10 * kNsPerMs);
  for (const int32_t tokens : {50, 20, 20, 20}) {  // the long one alone, the others together
    cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), tokens), "");
  }
  Pass(&cluster, 100 * kNsPerMs);
  EXPECT_EQ(StatsOf(&cluster, a).sends_done, 1);
  EXPECT_EQ(StatsOf(&cluster, b).sends_done, 3);
}

// ---------------------------------------------------------------- who may talk

TEST_F(Handoff, StrangersAreRefusedAndAskedAgainSlowly) {
  struct Case {
    const char* what;
    void (*change)(NodeOptions*);
  };
  const Case cases[] = {
      {"secret", [](NodeOptions* o) { o->secret = "another"; }},
      {"model", [](NodeOptions* o) { o->config.format.identity.low ^= 1; }},
      {"numerics", [](NodeOptions* o) { o->config.format.numerics = "fast"; }},
      {"tokens per block", [](NodeOptions* o) { o->config.format.groups[0].tokens_per_block = 8; }},
      {"shard",
       [](NodeOptions* o) {
         o->config.format.groups[0].shard = {0, 2};
       }},
  };
  for (const Case& c : cases) {
    Cluster cluster(5);
    NodeOptions options = PrefillNode();
    options.prefill.blocks = 64;
    c.change(&options);
    const SimNodeId prefill = cluster.Add(options);
    const SimNodeId decode = cluster.Add(DecodeNode());
    Pass(&cluster, 100 * kNsPerMs);
    EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 0) << c.what;
    EXPECT_EQ(StatsOf(&cluster, decode).nodes_waiting_now, 1) << c.what;
    const bool secret = std::string(c.what) == "secret";
    EXPECT_EQ(StatsOf(&cluster, decode).links_refused, secret ? 0 : 1) << c.what;
    EXPECT_EQ(StatsOf(&cluster, prefill).links_refused, secret ? 0 : 1) << c.what;
    // The node is set right and comes back: it is found again without anybody's help.
    cluster.Kill(prefill);
    cluster.options(prefill) = PrefillNode();
    cluster.Restart(prefill);
    Pass(&cluster, 500 * kNsPerMs);
    EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 1) << c.what;
  }
}

TEST_F(Handoff, ADecodeNodeIsNoPrefillNode) {
  Cluster cluster(6);
  const SimNodeId other = cluster.Add(DecodeNode());
  const SimNodeId decode = cluster.Add(DecodeNode());
  const std::string address = SimControl::AddressOf(other);
  ASSERT_TRUE(cluster.At(decode)->messenger().AddPrefillNode(address).ok());
  cluster.At(decode)->Wake();
  Pass(&cluster, 400 * kNsPerMs);
  EXPECT_EQ(StatsOf(&cluster, decode).nodes_ready_now, 0);
  EXPECT_FALSE(cluster.At(decode)->messenger().AddPrefillNode("nowhere").ok());
}

// Whoever knows the secret and sends nonsense loses its own link, and nobody else's.
TEST_F(Handoff, NonsenseEndsOnlyItsOwnLink) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cluster cluster(seed);
    const SimNodeId prefill = cluster.Add(PrefillNode());
    const SimNodeId decode = cluster.Add(DecodeNode());
    const SimNodeId rogue = cluster.world.AddNode();
    const auto fabric = cluster.fabric.MakeEngine(rogue, {});
    SimControl control(&cluster.control, rogue, "secret");
    Pass(&cluster, 10 * kNsPerMs);
    auto link = control.Connect(SimControl::AddressOf(prefill));
    Pass(&cluster, kNsPerMs);
    RandomMessages messages(seed);
    const Hello hello{.instance = 1, .format = FakeFormat(), .fabric_address = fabric->address()};
    ASSERT_TRUE(control.Send(*link, EncodeMessage(hello)).ok());
    Pass(&cluster, 2 * kNsPerMs);
    cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(control.Send(*link, EncodeMessage(messages.Next())).ok());
    }
    Pass(&cluster, 100 * kNsPerMs);
    EXPECT_EQ(cluster.Counts().arrived, 1);
    EXPECT_EQ(cluster.Counts().failed, 0);
    EXPECT_EQ(StatsOf(&cluster, decode).protocol_errors, 0);
  }
}

// A prefill node that answers requests with anything: the decoder's requests end all the same.
TEST_F(Handoff, AnswersOutOfOrderFailTheFetch) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Cluster cluster(seed);
    const SimNodeId rogue = cluster.world.AddNode();
    const auto fabric = cluster.fabric.MakeEngine(rogue, {});
    SimControl control(&cluster.control, rogue, "secret");
    // The cluster counts its own nodes only, so the rogue's number is that of a node that is not
    // started: it is added by hand.
    cluster.Reserve(rogue);
    const SimNodeId decode = cluster.Add(DecodeNode());
    ASSERT_TRUE(cluster.At(decode)->messenger().AddPrefillNode(SimControl::AddressOf(rogue)).ok());
    cluster.At(decode)->Wake();
    SplitMix64 random(seed);
    bool asked = false;
    for (int turn = 0; turn < 400; ++turn) {
      Pass(&cluster, 200 * kNsPerUs);
      std::vector<LinkEvent> events;
      control.Poll(&events);
      for (const LinkEvent& event : events) {
        if (const auto* up = std::get_if<LinkUp>(&event)) {
          const Hello hello{.instance = 1,
                            .format = FakeFormat(),
                            .fabric_address = fabric->address(),
                            .takes_jobs = true};
          (void)control.Send(up->link, EncodeMessage(hello));
          (void)control.Send(up->link, EncodeMessage(Ready{}));
        } else if (const auto* frame = std::get_if<FrameReceived>(&event)) {
          auto message = DecodeMessage(frame->frame);
          ASSERT_TRUE(message.ok());
          const auto* prepare = std::get_if<Prepare>(&*message);
          if (prepare == nullptr) continue;
          asked = true;
          const HandoffMessage answers[] = {ProgressMade{prepare->id, 3},
                                            Done{prepare->id, 1, 30},
                                            Done{prepare->id, 1, 1 << 20},
                                            Stopped{prepare->id},
                                            Failed{prepare->id, StatusCode::kInternal, "no"},
                                            ProgressMade{HandoffId(999), 1},
                                            Ready{},
                                            Heartbeat{}};
          for (int i = 0; i < 3; ++i) {
            (void)control.Send(frame->link, EncodeMessage(answers[random.Below(8)]));
          }
        }
      }
      if (turn == 50) {
        cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 40), "");
      }
    }
    EXPECT_TRUE(asked);
    Pass(&cluster, kNsPerS);
    EXPECT_EQ(cluster.Counts().arrived, 0);
    EXPECT_EQ(cluster.Counts().finished, 1);
    EXPECT_TRUE(cluster.At(decode)->decoder()->idle());
  }
}

// ---------------------------------------------------------------- ends

TEST_F(Handoff, CancelAtEveryMomentLeavesNothingBehind) {
  int64_t arrived = 0;
  int64_t cancelled_sends = 0;
  for (TimeNs at = 0; at < 4 * kNsPerMs; at += 20 * kNsPerUs) {
    Cluster cluster(7);
    const SimNodeId prefill = cluster.Add(PrefillNode());
    NodeOptions options = DecodeNode();
    options.decode.run_most = 0;
    const SimNodeId decode = cluster.Add(options);
    Pass(&cluster, 10 * kNsPerMs);
    FakeDecoder* const decoder = cluster.At(decode)->decoder();
    decoder->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
    Pass(&cluster, at);
    decoder->Cancel(RequestId(1));
    Pass(&cluster, 100 * kNsPerMs);
    arrived += cluster.Counts().arrived;
    cancelled_sends += StatsOf(&cluster, prefill).sends_cancelled;
    ASSERT_EQ(StatsOf(&cluster, decode).fences, 0);
    ASSERT_TRUE(cluster.idle());
    cluster.CheckIdle();
  }
  EXPECT_GT(arrived, 0) << "the last cancels come too late";
  EXPECT_GT(cancelled_sends, 20);
}

TEST_F(Handoff, AFetchThatFailsGoesElsewhere) {
  Cluster cluster(8);
  const SimNodeId a = cluster.Add(PrefillNode());
  const SimNodeId b = cluster.Add(PrefillNode());
  const SimNodeId decode = cluster.Add(DecodeNode());
  Pass(&cluster, 10 * kNsPerMs);
  cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
  Pass(&cluster, 500 * kNsPerUs);
  ASSERT_EQ(StatsOf(&cluster, a).sends_now, 1);
  cluster.Kill(a);
  Pass(&cluster, 100 * kNsPerMs);
  EXPECT_EQ(cluster.Counts().failed, 1);
  EXPECT_EQ(cluster.Counts().arrived, 1);
  EXPECT_EQ(StatsOf(&cluster, b).sends_done, 1);
  EXPECT_EQ(StatsOf(&cluster, decode).fetches_elsewhere, 1);
  EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 1);
  cluster.Restart(a);
  Pass(&cluster, 200 * kNsPerMs);
  EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 2);
  cluster.CheckIdle();
}

// The prefill node stops in the middle. Its writes are fenced off, and when it goes on they hit a
// closed region: the cluster's hook fails for each byte that lands in a block that is not awaited.
TEST_F(Handoff, AStoppedPrefillNodeIsFencedOff) {
  int64_t stale = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Cluster cluster(seed);
    const SimNodeId prefill = cluster.Add(PrefillNode());
    NodeOptions options = DecodeNode();
    options.decode.attempts_most = 1;
    options.decode.blocks = 16;  // the next request takes the same blocks
    const SimNodeId decode = cluster.Add(options);
    Pass(&cluster, 10 * kNsPerMs);
    cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
    Pass(&cluster, static_cast<TimeNs>(seed) * 50 * kNsPerUs);
    if (StatsOf(&cluster, decode).fetches_now == 0) continue;
    cluster.world.Stop(prefill);
    // Pieces that were read are slow on the wire.
    cluster.world.faults().slow = 1;
    cluster.world.faults().delay_slow = 300 * kNsPerMs;
    Pass(&cluster, 100 * kNsPerMs);  // three heartbeats
    EXPECT_EQ(StatsOf(&cluster, decode).fetches_now, 0);
    EXPECT_EQ(StatsOf(&cluster, decode).heartbeats_missed, 1);
    cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 48), "");
    Pass(&cluster, 50 * kNsPerMs);
    cluster.world.faults().slow = 0;
    cluster.world.Continue(prefill);
    Pass(&cluster, kNsPerS);
    EXPECT_EQ(cluster.Counts().finished, 2);
    EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 1) << "it comes back";
    stale += StatsOf(&cluster, decode).fences;
    cluster.CheckIdle();
  }
  EXPECT_GT(stale, 5);
}

TEST_F(Handoff, WhatIsNotConfirmedInTimeStaysQuarantinedUntilTheFence) {
  Cluster cluster(9);
  const SimNodeId prefill = cluster.Add(PrefillNode());
  NodeOptions options = DecodeNode();
  options.config.heartbeat_interval = kNsPerS;  // so that the missing confirmation is noticed first
  options.decode.attempts_most = 1;
  const SimNodeId decode = cluster.Add(options);
  Pass(&cluster, 10 * kNsPerMs);
  FakeDecoder* const decoder = cluster.At(decode)->decoder();
  decoder->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
  Pass(&cluster, 300 * kNsPerUs);
  ASSERT_EQ(StatsOf(&cluster, decode).fetches_now, 1);
  cluster.world.Stop(prefill);
  decoder->Cancel(RequestId(1));
  Pass(&cluster, 20 * kNsPerMs);
  EXPECT_EQ(decoder->pools().pools[0].blocks.held(), 13);
  EXPECT_EQ(StatsOf(&cluster, decode).quarantined_blocks_now,
            13 + decoder->pools().pools[1].blocks.held());
  Pass(&cluster, 30 * kNsPerMs);
  EXPECT_EQ(StatsOf(&cluster, decode).quarantined_blocks_now, 0);
  EXPECT_EQ(StatsOf(&cluster, decode).fences, 1);
  EXPECT_EQ(decoder->pools().pools[0].blocks.held(), 0);
}

TEST_F(Handoff, AFullPrefillPoolIsWaitedForNoLongerThanTheDeadline) {
  Cluster cluster(10);
  NodeOptions options = PrefillNode();
  options.prefill.blocks = 4;  // 16 tokens
  const SimNodeId prefill = cluster.Add(options);
  const SimNodeId decode = cluster.Add(DecodeNode());
  Pass(&cluster, 10 * kNsPerMs);
  cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
  Pass(&cluster, kNsPerS);
  EXPECT_EQ(cluster.Counts().failed, 2);
  EXPECT_EQ(cluster.Counts().finished, 1) << "computed here in the end";
  EXPECT_EQ(StatsOf(&cluster, prefill).sends_cancelled, 2);
  EXPECT_EQ(StatsOf(&cluster, decode).fences, 0) << "the prefill node has confirmed";
  cluster.CheckIdle();
}

TEST_F(Handoff, OtherPeersAreNotDisturbed) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Cluster cluster(seed);
    const SimNodeId bad = cluster.Add(PrefillNode());
    cluster.Add(PrefillNode());
    std::vector<SimNodeId> decodes;
    for (int i = 0; i < 2; ++i) decodes.push_back(cluster.Add(DecodeNode()));
    Pass(&cluster, 10 * kNsPerMs);
    for (int i = 0; i < 30; ++i) {
      const SimNodeId decode = decodes[static_cast<size_t>(i % 2)];
      cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 40), "");
      Pass(&cluster, 2 * kNsPerMs);
      switch (i % 8) {
        case 1: cluster.Kill(bad); break;
        case 3: cluster.Restart(bad); break;
        case 6: cluster.world.Stop(bad); break;
        case 7: cluster.world.Continue(bad); break;
        default: break;
      }
    }
    if (!cluster.world.alive(bad)) cluster.Restart(bad);
    cluster.world.Continue(bad);
    Pass(&cluster, kNsPerS);
    for (const SimNodeId decode : decodes) {
      for (const std::string& failure : cluster.At(decode)->decoder()->failures()) {
        EXPECT_NE(failure.find("prefill node " + SimControl::AddressOf(bad)), std::string::npos)
            << failure;
      }
    }
    EXPECT_EQ(cluster.Counts().finished, 30);
    cluster.CheckIdle();
  }
}

TEST_F(Handoff, ANodeThatLeavesKeepsItsFetches) {
  Cluster cluster(12);
  const SimNodeId prefill = cluster.Add(PrefillNode());
  const SimNodeId decode = cluster.Add(DecodeNode());
  const std::string address = SimControl::AddressOf(prefill);
  Pass(&cluster, 10 * kNsPerMs);
  Messenger& messenger = cluster.At(decode)->messenger();
  cluster.At(decode)->decoder()->Arrive(FreshPrompt(&cluster.world.random(), 50), "");
  messenger.RemovePrefillNode(address);
  messenger.RemovePrefillNode("9:9");  // unknown: nothing happens
  cluster.At(decode)->Wake();
  Pass(&cluster, kNsPerMs / 2);
  EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 0);
  EXPECT_EQ(StatsOf(&cluster, decode).nodes_leaving_now, 1);
  Pass(&cluster, 50 * kNsPerMs);
  EXPECT_EQ(cluster.Counts().arrived, 1);
  EXPECT_EQ(StatsOf(&cluster, decode).nodes_leaving_now, 0);
  EXPECT_EQ(StatsOf(&cluster, prefill).decode_peers_now, 0);
  ASSERT_TRUE(messenger.AddPrefillNode(address).ok());
  cluster.At(decode)->Wake();
  Pass(&cluster, 50 * kNsPerMs);
  EXPECT_EQ(cluster.At(decode)->decoder()->ready_peers(), 1);
}

}  // namespace
}  // namespace tandem::testing
