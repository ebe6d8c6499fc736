#include "tensor/block_encode.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/half.h"

namespace tandem {
namespace {

constexpr int kBlock = 32;

float Reciprocal(float d) { return d == 0 ? 0.0f : 1.0f / d; }

// Truncates to low .. high; NaN becomes low.
int Truncated(float v, int low, int high) {
  if (!(v > static_cast<float>(low))) return low;
  return v >= static_cast<float>(high) ? high : static_cast<int>(v);
}
// Rounds to low .. high, halves away from zero; NaN becomes low. (Searches spend their time here:
// std::round would be a call.)
int Rounded(float v, int low, int high) {
  if (!(v > static_cast<float>(low))) return low;
  if (v >= static_cast<float>(high)) return high;
  const int whole = static_cast<int>(v);
  const float rest = v - static_cast<float>(whole);
  return whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
}

uint8_t Code(int code) { return static_cast<uint8_t>(code); }

// The value of largest magnitude, with its sign.
float Extreme(const float* x, int n) {
  float extreme = 0;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  }
  return extreme;
}

// Q4_0, Q5_0: the extreme becomes the lowest code.
void EncodeSymmetric(const QuantFormat& format, const float* x, BlockFields* f) {
  const auto bias = static_cast<float>(format.bias);
  const float d = Extreme(x, kBlock) / -bias;
  const float inverse = Reciprocal(d);
  for (int i = 0; i < kBlock; ++i) {
    f->codes[i] = Code(Truncated(x[i] * inverse + (bias + 0.5f), 0, format.max_code()));
  }
  f->d = FloatToHalf(d);
}

// Q4_1, Q5_1: from the least value to the largest.
void EncodeRange(const QuantFormat& format, const float* x, BlockFields* f) {
  float low = x[0];
  float high = x[0];
  for (int i = 1; i < kBlock; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  const float d = (high - low) / static_cast<float>(format.max_code());
  const float inverse = Reciprocal(d);
  for (int i = 0; i < kBlock; ++i) {
    f->codes[i] = Code(Truncated((x[i] - low) * inverse + 0.5f, 0, format.max_code()));
  }
  f->d = FloatToHalf(d);
  f->m = FloatToHalf(low);
}

void EncodeBytes(const float* x, BlockFields* f) {
  const float d = std::fabs(Extreme(x, kBlock)) / 127.0f;
  const float inverse = Reciprocal(d);
  f->d = FloatToHalf(d);
  for (int i = 0; i < kBlock; ++i) {
    const float v = x[i] * inverse;
    f->codes[i] = Code((std::isnan(v) ? 0 : Rounded(v, -127, 127)) + 128);
  }
}

// Halfway between neighbours of kNonlinearTable, and of the magnitudes of kFloat4Table.
constexpr float kNonlinearBorders[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                         7,       19,     31.5f, 45.5f, 61,  79,     101};
constexpr float kFloat4Borders[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};

// The first of 2^k ranges, apart by 2^k - 1 rising borders, whose upper border is not below v; the
// first for NaN.
template <size_t kBorders>
int RangeOf(const float (&borders)[kBorders], float v) {
  size_t range = 0;
  for (size_t step = (kBorders + 1) / 2; step > 0; step /= 2) {
    if (v > borders[range + step - 1]) range += step;
  }
  return static_cast<int>(range);
}

// The code whose table value is nearest; the first of equals, and the first for NaN.
uint8_t NearestInTable(const int8_t* table, float v) {
  if (table == kNonlinearTable) return Code(RangeOf(kNonlinearBorders, v));
  TANDEM_CHECK(table == kFloat4Table);
  const int magnitude = RangeOf(kFloat4Borders, std::fabs(v));
  return Code(v < 0 && magnitude > 0 ? magnitude + 8 : magnitude);
}

// A power of two under which the largest magnitude lies in the table's last two octaves.
void EncodeExponent(const QuantFormat& format, const float* x, BlockFields* f) {
  const float extreme = Extreme(x, kBlock);
  const int exponent = extreme == 0 || !std::isfinite(extreme) ? -127 : std::ilogb(extreme) - 2;
  f->d = static_cast<uint16_t>(std::clamp(exponent + 127, 0, 254));
  const float scale = ScaleOf(format, *f, 0).scale;
  for (int i = 0; i < kBlock; ++i) f->codes[i] = NearestInTable(format.table, x[i] / scale);
}

// The integer that stands for v = x / scale.
int NearestValue(const QuantFormat& format, float v) {
  if (format.table != nullptr) return format.table[NearestInTable(format.table, v)];
  return Rounded(v, -format.bias, format.max_code() - format.bias);
}

// The scale of n values without a minimum that leaves the least squared error, of some that bring
// the extreme near to the lowest value, each corrected by least squares.
float SearchScale(const QuantFormat& format, const float* x, int n) {
  const float extreme = Extreme(x, n);
  if (extreme == 0 || !std::isfinite(extreme)) return 0;
  const auto lowest = static_cast<float>(format.table != nullptr ? format.table[0] : -format.bias);
  const float step = std::fabs(lowest) / 40;
  float best = 0;
  float best_gain = -1;
  for (int t = -9; t <= 9; ++t) {
    const float inverse = (lowest + step * static_cast<float>(t)) / extreme;
    float xv = 0;
    float vv = 0;
    for (int i = 0; i < n; ++i) {
      const auto v = static_cast<float>(NearestValue(format, x[i] * inverse));
      xv += x[i] * v;
      vv += v * v;
    }
    if (!(vv > 0) || !(xv * xv > best_gain * vv)) continue;
    best_gain = xv * xv / vv;
    best = xv / vv;
  }
  return best;
}

// Codes of the values that share scale i, for what is stored of the scale.
void ChooseCodes(const QuantFormat& format, const float* x, int i, BlockFields* f) {
  const auto [scale, minimum] = ScaleOf(format, *f, i);
  const float inverse = Reciprocal(scale);
  for (int c = i * format.columns_per_scale; c < (i + 1) * format.columns_per_scale; ++c) {
    const float v = (x[c] - minimum) * inverse;
    f->codes[c] = format.table != nullptr
                      ? NearestInTable(format.table, v)
                      : Code(Rounded(v + static_cast<float>(format.bias), 0, format.max_code()));
  }
}

// IQ4_NL.
void EncodeTable(const QuantFormat& format, const float* x, BlockFields* f) {
  f->d = FloatToHalf(SearchScale(format, x, kBlock));
  ChooseCodes(format, x, 0, f);
}

// Q3_K, Q6_K, IQ4_XS: the scale of largest magnitude becomes the lowest integer.
void EncodeProduct(DType dtype, const QuantFormat& format, const float* x, BlockFields* f) {
  const int n = format.columns_per_scale;
  const int count = kMaxBlockElements / n;
  const int lowest = dtype == DType::kQ6_K ? -128 : -32;
  float scales[kMaxBlockScales];
  for (int i = 0; i < count; ++i) scales[i] = SearchScale(format, x + i * n, n);
  const float d = Extreme(scales, count) / static_cast<float>(lowest);
  const float inverse = Reciprocal(d);
  f->d = FloatToHalf(d);
  for (int i = 0; i < count; ++i) {
    f->scales[i] =
        static_cast<int8_t>(d == 0 ? 0 : Rounded(scales[i] * inverse, lowest, -lowest - 1));
    ChooseCodes(format, x, i, f);
  }
}

struct Line {
  float scale = 0;
  float low = 0;  // not above 0
};
// The line low + scale * code through n values with the least squared error, of some near the one
// from the least value (or 0) to the largest, each corrected by least squares.
Line SearchLine(int max_code, const float* x, int n) {
  float low = 0;
  float high = x[0];
  for (int i = 0; i < n; ++i) {
    low = x[i] < low ? x[i] : low;
    high = x[i] > high ? x[i] : high;
  }
  if (!(high > low) || !std::isfinite(high - low)) return {0, std::isfinite(low) ? low : 0};
  Line best{(high - low) / static_cast<float>(max_code), low};
  float best_error = -1;
  for (int t = -10; t <= 10; ++t) {
    const float inverse =
        (static_cast<float>(max_code) + 0.1f * static_cast<float>(t)) / (high - low);
    float sum_q = 0, sum_qq = 0, sum_x = 0, sum_xq = 0, sum_xx = 0;
    for (int i = 0; i < n; ++i) {
      const auto q = static_cast<float>(Rounded((x[i] - low) * inverse, 0, max_code));
      sum_q += q;
      sum_qq += q * q;
      sum_x += x[i];
      sum_xq += x[i] * q;
      sum_xx += x[i] * x[i];
    }
    const auto count = static_cast<float>(n);
    const float determinant = count * sum_qq - sum_q * sum_q;
    if (!(determinant > 0)) continue;
    Line line{(count * sum_xq - sum_x * sum_q) / determinant,
              (sum_qq * sum_x - sum_q * sum_xq) / determinant};
    if (line.low > 0) line = {sum_xq / sum_qq, 0};
    const float error =
        sum_xx + count * line.low * line.low + line.scale * line.scale * sum_qq +
        2 * (line.low * line.scale * sum_q - line.low * sum_x - line.scale * sum_xq);
    if (line.scale > 0 && (best_error < 0 || error < best_error)) {
      best_error = error;
      best = line;
    }
  }
  return best;
}

// Q2_K, Q4_K, Q5_K.
void EncodeProductAndMinimum(const QuantFormat& format, const float* x, BlockFields* f) {
  const int n = format.columns_per_scale;
  const int count = kMaxBlockElements / n;
  const int most = n == 16 ? 15 : 63;  // bits of the integers
  Line lines[kMaxBlockScales];
  float largest_scale = 0;
  float largest_low = 0;
  for (int i = 0; i < count; ++i) {
    lines[i] = SearchLine(format.max_code(), x + i * n, n);
    largest_scale = std::max(largest_scale, lines[i].scale);
    largest_low = std::max(largest_low, -lines[i].low);
  }
  const float d = largest_scale / static_cast<float>(most);
  const float m = largest_low / static_cast<float>(most);
  f->d = FloatToHalf(d);
  f->m = FloatToHalf(m);
  for (int i = 0; i < count; ++i) {
    f->scales[i] = static_cast<int8_t>(Rounded(lines[i].scale * Reciprocal(d), 0, most));
    f->minima[i] = Code(Rounded(-lines[i].low * Reciprocal(m), 0, most));
    ChooseCodes(format, x, i, f);
  }
}

}  // namespace

BlockFields EncodeBlock(DType dtype, const float* x) {
  const QuantFormat& format = FormatOf(dtype);
  BlockFields fields;
  switch (format.form) {
    case ScaleForm::kHalf:
      if (format.table != nullptr) {
        EncodeTable(format, x, &fields);
      } else if (format.code_bits == 8) {
        EncodeBytes(x, &fields);
      } else {
        EncodeSymmetric(format, x, &fields);
      }
      break;
    case ScaleForm::kHalfAndMinimum: EncodeRange(format, x, &fields); break;
    case ScaleForm::kProduct: EncodeProduct(dtype, format, x, &fields); break;
    case ScaleForm::kProductAndMinimum: EncodeProductAndMinimum(format, x, &fields); break;
    case ScaleForm::kExponent: EncodeExponent(format, x, &fields); break;
  }
  return fields;
}

}  // namespace tandem
