#include "messenger/protocol.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "messenger/control_link.h"
#include "messenger/frame_codec.h"

namespace tandem {
namespace {

enum class Kind : uint8_t {
  kHello,
  kReady,
  kPrepare,
  kProgress,
  kDone,
  kFailed,
  kStopped,
  kCancel,
  kHeartbeat,
};
static_assert(std::variant_size_v<HandoffMessage> == static_cast<size_t>(Kind::kHeartbeat) + 1);

constexpr uint32_t kMagic = 0x4f484454;  // "TDHO"
constexpr size_t kMaxRegionBytes = 2048;
static_assert(kMaxRegionBytes > RemoteRegion::kMaxNics * (RemoteRegion::kMaxEndpointBytes + 32));

// ---------------------------------------------------------------- hello

void PutGroup(const StateGroup& group, FrameWriter* out) {
  out->Put(static_cast<uint8_t>(group.kind));
  out->PutCount(group.layers.size());
  for (const int32_t layer : group.layers) out->Put(layer);
  out->Put(group.num_heads);
  out->PutCount(group.planes.size());
  for (const StatePlane& plane : group.planes) {
    out->PutString(plane.name);
    out->PutString(NameOf(plane.dtype));  // names outlive the order of an enum
    out->Put(static_cast<uint8_t>(plane.tile));
    out->Put(plane.dims);
  }
  out->Put(group.tokens_per_block);
  out->Put(group.window_tokens);
  out->Put(group.shard.rank);
  out->Put(group.shard.world);
}

StateGroup GetGroup(FrameReader* in) {
  StateGroup group;
  group.kind = in->GetEnum(StateKind::kWindow);
  group.layers.resize(in->GetCount(HandoffFormat::kMaxLayers, sizeof(int32_t)));
  for (int32_t& layer : group.layers) layer = in->GetNatural();
  group.num_heads = in->GetNatural();
  group.planes.resize(in->GetCount(HandoffFormat::kMaxPlanes, 1));
  for (StatePlane& plane : group.planes) {
    plane.name = in->GetString(HandoffFormat::kMaxNameBytes);
    const std::string dtype = in->GetString(HandoffFormat::kMaxNameBytes);
    const std::optional<DType> known = DTypeFromName(dtype);
    if (!known || NameOf(*known) != dtype) in->Fail("has an unknown type of value");
    plane.dtype = known.value_or(DType::kF32);
    plane.tile = in->GetEnum(TileLayout::kDimMajor);
    plane.dims = in->GetNatural();
  }
  group.tokens_per_block = in->GetNatural();
  group.window_tokens = in->GetNatural();
  group.shard.rank = in->GetNatural();
  group.shard.world = in->GetNatural();
  return group;
}

void Put(const Hello& hello, FrameWriter* out) {
  out->Put(kMagic);
  out->Put(kHandoffVersion);
  out->Put(hello.instance);
  out->PutString(hello.format.model);
  out->Put(hello.format.identity.high);
  out->Put(hello.format.identity.low);
  out->PutString(hello.format.numerics);
  out->PutCount(hello.format.groups.size());
  for (const StateGroup& group : hello.format.groups) PutGroup(group, out);
  out->PutString(hello.fabric_address);
  out->Put(static_cast<uint8_t>(hello.takes_jobs));
}

Hello GetHello(FrameReader* in) {
  Hello hello;
  hello.instance = in->Get<uint64_t>();
  hello.format.model = in->GetString(HandoffFormat::kMaxNameBytes);
  hello.format.identity.high = in->Get<uint64_t>();
  hello.format.identity.low = in->Get<uint64_t>();
  hello.format.numerics = in->GetString(HandoffFormat::kMaxNameBytes);
  hello.format.groups.resize(in->GetCount(HandoffFormat::kMaxGroups, 1));
  for (StateGroup& group : hello.format.groups) group = GetGroup(in);
  hello.fabric_address = in->GetString(kMaxFabricAddressBytes);
  const auto takes_jobs = in->Get<uint8_t>();
  if (takes_jobs > 1) in->Fail("has an unknown kind");
  hello.takes_jobs = takes_jobs == 1;
  return hello;
}

// ---------------------------------------------------------------- prepare

RemoteRegion GetRegion(FrameReader* in) {
  const std::string bytes = in->GetString(kMaxRegionBytes);
  if (!in->ok()) return {};
  auto region = RemoteRegion::Decode(bytes);
  if (!region.ok()) return in->Fail<RemoteRegion>("describes no memory");
  return *std::move(region);
}

template <typename Id>
void PutIds(const std::vector<Id>& ids, FrameWriter* out) {
  out->PutCount(ids.size());
  for (const Id id : ids) out->Put(id.value());
}

template <typename Id>
std::vector<Id> GetIds(size_t most, FrameReader* in) {
  std::vector<Id> ids(in->GetCount(most, sizeof(int32_t)));
  for (Id& id : ids) id = Id(in->GetNatural());
  return ids;
}

void Put(const Prepare& prepare, FrameWriter* out) {
  size_t ids = prepare.tokens.size();
  for (const Prepare::Group& group : prepare.groups) ids += group.blocks.size();
  out->Reserve(1024 + sizeof(int32_t) * ids);
  out->Put(prepare.id.value());
  out->Put(prepare.budget);
  PutIds(prepare.tokens, out);
  out->Put(prepare.have);
  out->PutString(prepare.cache_salt);
  out->PutCount(prepare.groups.size());
  for (const Prepare::Group& group : prepare.groups) {
    out->PutString(group.region.Encode());
    PutIds(group.blocks, out);
  }
  out->PutCount(prepare.expectations.size());
  for (const Expectation& expectation : prepare.expectations) {
    out->Put(expectation.first);
    out->Put(expectation.pieces);
  }
}

Prepare GetPrepare(FrameReader* in) {
  Prepare prepare;
  prepare.id = HandoffId(in->Get<uint64_t>());
  prepare.budget = in->Get<TimeNs>();
  if (prepare.budget <= 0) in->Fail("has no time left");
  prepare.tokens = GetIds<TokenId>(kMaxHandoffTokens, in);
  prepare.have = in->GetNatural();
  prepare.cache_salt = in->GetString(kMaxSaltBytes);
  prepare.groups.resize(in->GetCount(HandoffFormat::kMaxGroups, 1));
  for (Prepare::Group& group : prepare.groups) {
    group.region = GetRegion(in);
    group.blocks = GetIds<BlockId>(kMaxHandoffPages, in);
  }
  prepare.expectations.resize(in->GetCount(kMaxHandoffExpectations, 2 * sizeof(uint32_t)));
  for (Expectation& expectation : prepare.expectations) {
    expectation.first = in->Get<uint32_t>();
    expectation.pieces = in->Get<uint32_t>();
  }
  return prepare;
}

// ---------------------------------------------------------------- the small ones

void Put(const Ready&, FrameWriter*) {}
void Put(const Heartbeat&, FrameWriter*) {}
void Put(const Stopped& stopped, FrameWriter* out) { out->Put(stopped.id.value()); }
void Put(const CancelHandoff& cancel, FrameWriter* out) { out->Put(cancel.id.value()); }
void Put(const ProgressMade& progress, FrameWriter* out) {
  out->Put(progress.id.value());
  out->Put(progress.end);
}
void Put(const Done& done, FrameWriter* out) {
  out->Put(done.id.value());
  out->Put(done.chunks);
  out->Put(done.pages);
}
void Put(const Failed& failed, FrameWriter* out) {
  out->Put(failed.id.value());
  out->Put(static_cast<uint8_t>(failed.code));
  out->PutString(std::string_view(failed.reason).substr(0, kMaxReasonBytes));
}

HandoffId GetId(FrameReader* in) { return HandoffId(in->Get<uint64_t>()); }

ProgressMade GetProgress(FrameReader* in) {
  const HandoffId id = GetId(in);
  return {id, in->GetNatural()};
}

Done GetDone(FrameReader* in) {
  Done done{.id = GetId(in)};
  done.chunks = in->GetNatural();
  done.pages = in->GetNatural();
  return done;
}

Failed GetFailed(FrameReader* in) {
  Failed failed{.id = GetId(in)};
  failed.code = in->GetEnum(StatusCode::kInternal);
  if (failed.code == StatusCode::kOk) in->Fail("fails without an error");
  failed.reason = in->GetString(kMaxReasonBytes);
  return failed;
}

HandoffMessage GetBody(Kind kind, FrameReader* in) {
  switch (kind) {
    case Kind::kHello: return GetHello(in);
    case Kind::kReady: return Ready{};
    case Kind::kPrepare: return GetPrepare(in);
    case Kind::kProgress: return GetProgress(in);
    case Kind::kDone: return GetDone(in);
    case Kind::kFailed: return GetFailed(in);
    case Kind::kStopped: return Stopped{GetId(in)};
    case Kind::kCancel: return CancelHandoff{GetId(in)};
    case Kind::kHeartbeat: return Heartbeat{};
  }
  return Heartbeat{};
}

}  // namespace

std::string EncodeMessage(const HandoffMessage& message) {
  FrameWriter out;
  out.Put(static_cast<uint8_t>(message.index()));
  std::visit([&out](const auto& body) { Put(body, &out); }, message);
  std::string frame = out.Take();
  TANDEM_CHECK_LE(frame.size(), ControlLink::kMaxFrameBytes);
  return frame;
}

Result<HandoffMessage> DecodeMessage(std::string_view frame) {
  FrameReader in(frame);
  const auto kind = in.GetEnum(Kind::kHeartbeat);
  if (in.ok() && kind == Kind::kHello) {
    if (in.Get<uint32_t>() != kMagic) in.Fail("is none");
    const auto version = in.Get<uint16_t>();
    if (in.ok() && version != kHandoffVersion) {
      return FailedPreconditionError(
          "hand-off version {} there, {} here: run the same release on both nodes", version,
          kHandoffVersion);
    }
  }
  HandoffMessage message = GetBody(kind, &in);
  TANDEM_RETURN_IF_ERROR(in.Finish());
  return message;
}

}  // namespace tandem
