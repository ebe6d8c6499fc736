#include "model/linear.h"

#include "base/check.h"

namespace tandem {

bool Linear::ReadsQ8(Numerics numerics) const {
  return numerics.arithmetic == Arithmetic::kFast && InfoOf(weight.dtype).block_elements > 1;
}

ActivationNeeds NeedsOf(Numerics numerics, std::initializer_list<const Linear*> readers) {
  ActivationNeeds needs;
  for (const Linear* reader : readers) {
    (reader->ReadsQ8(numerics) ? needs.q8 : needs.f32) = true;
  }
  return needs;
}

void Project(Stream& stream, const Activation& x, int32_t rows,
             std::initializer_list<Projection> projections, bool accumulate) {
  MatMulArgs args;
  args.x = x;
  args.rows = rows;
  TANDEM_CHECK_LE(projections.size(), std::size(args.parts));
  for (const Projection& p : projections) {
    MatMulPart& part = args.parts[args.num_parts++];
    part.weight = p.linear->weight;
    part.out = p.out;
    part.out_stride = p.linear->out_dim();
    part.accumulate = accumulate;
  }
  MatMul(stream, args);
}

}  // namespace tandem
