#include <algorithm>
#include <numeric>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group scans GROUP_X * EACH elements: each work item scans its own, then the group scans the sums of the work
// items.
constexpr const char* scan_source = R"(KERNEL {
  int thread = local_id_x;
  int base = global_id_x * EACH;
  uint v[EACH];
  for (int i = 0; i < EACH; ++i) v[i] = base + i < count ? values[base + i] : 0u;
  for (int i = 1; i < EACH; ++i) v[i] += v[i - 1];

  uint sum = v[EACH - 1];
  sums[thread] = sum;
  group_barrier();
  for (int apart = 1; apart < GROUP_X; apart <<= 1) {
    uint before = thread >= apart ? sums[thread - apart] : 0u;
    group_barrier();
    sum += before;
    sums[thread] = sum;
    group_barrier();
  }
  uint carry = sum - v[EACH - 1];

  for (int i = 0; i < EACH; ++i) {
    if (base + i >= count) continue;
#if INCLUSIVE
    result[base + i] = carry + v[i];
#else
    result[base + i] = i == 0 ? carry : carry + v[i - 1];
#endif
  }
}
)";

// One group reduces the whole input: its work items stride over it EACH elements at a time, then reduce in pairs.
constexpr const char* sum_source = R"(KERNEL {
  int thread = local_id_x;
  float mine = 0.0f;
  for (int start = thread; start < count; start += GROUP_X * EACH) {
    float some[EACH];
    for (int i = 0; i < EACH; ++i) some[i] = start + i * GROUP_X < count ? values[start + i * GROUP_X] : 0.0f;
    for (int i = 0; i < EACH; ++i) mine += some[i];
  }
  sums[thread] = mine;
  for (int other = GROUP_X / 2; other > 0; other >>= 1) {
    group_barrier();
    if (thread < other) sums[thread] += sums[thread + other];
  }
  if (thread == 0) result[0] = sums[0];
}
)";

// The first of equal values wins.
constexpr const char* argmax_source = R"(FUNCTION bool beats(float a, int a_at, float b, int b_at) {
  return a > b || (a == b && a_at < b_at);
}

KERNEL {
  int thread = local_id_x;
  float mine = -INFINITY;
  int mine_at = 0x7fffffff;
  for (int start = thread; start < count; start += GROUP_X * EACH) {
    float some[EACH];
    for (int i = 0; i < EACH; ++i) some[i] = start + i * GROUP_X < count ? values[start + i * GROUP_X] : -INFINITY;
    for (int i = 0; i < EACH; ++i) {
      bool better = beats(some[i], start + i * GROUP_X, mine, mine_at);
      mine = better ? some[i] : mine;
      mine_at = better ? start + i * GROUP_X : mine_at;
    }
  }
  most[thread] = mine;
  most_at[thread] = mine_at;
  for (int other = GROUP_X / 2; other > 0; other >>= 1) {
    group_barrier();
    if (thread < other && beats(most[thread + other], most_at[thread + other], most[thread], most_at[thread])) {
      most[thread] = most[thread + other];
      most_at[thread] = most_at[thread + other];
    }
  }
  if (thread == 0) result[0] = to_float(most_at[0]);
}
)";

// Counts in shared memory first, so that global memory sees few atomics.
constexpr const char* histogram_source = R"(KERNEL {
  for (int i = local_id_x; i < 3 * BINS; i += GROUP_X) bins[i] = 0u;
  group_barrier();
  int stride = group_count_x * GROUP_X;
  for (int start = global_id_x; start < count; start += stride * EACH)
    for (int i = 0; i < EACH; ++i) {
      int at = start + i * stride;
      if (at >= count) break;
      uint pixel = pixels[at];
      for (int channel = 0; channel < 3; ++channel) {
        int level = to_int((pixel >> (8 * channel)) & 0xffu);
        atomicAdd(bins[channel * BINS + level * BINS / 256], 1u);
      }
    }
  group_barrier();
  for (int i = local_id_x; i < 3 * BINS; i += GROUP_X)
    if (bins[i] != 0u) atomicAdd(histogram[i], bins[i]);
}
)";

Case scan(std::string name, bool inclusive) {
  constexpr std::size_t block = 32 * 16;
  const std::int32_t count = 3 * block - 5;
  std::vector<std::uint32_t> values = noise_bits(static_cast<std::size_t>(count), 1);
  std::vector<std::uint32_t> expected(values.size());
  for (std::size_t start = 0; start < values.size(); start += block) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(start);
    const auto last = values.begin() + static_cast<std::ptrdiff_t>(std::min(start + block, values.size()));
    const auto to = expected.begin() + static_cast<std::ptrdiff_t>(start);
    if (inclusive)
      std::inclusive_scan(first, last, to);
    else
      std::exclusive_scan(first, last, to, 0U);
  }
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"values", Type::u32}, {"result", Type::u32, Access::write}},
                     .scalars = {{"count"}},
                     .shared = {{"sums", Type::u32, {"GROUP_X"}}},
                     .group_size = {32, 1, 1},
                     .parameters = {{"EACH", "16"}, {"INCLUSIVE", inclusive ? "1" : "0"}},
                     .source = scan_source},
          .groups = {3, 1, 1},
          .scalars = {count},
          .inputs = {std::move(values)},
          .expected = std::move(expected)};
}

Case reduce(std::string name, const char* source, std::vector<SharedArray> shared,
            float (*fold)(const std::vector<float>&)) {
  const std::int32_t count = 4000;
  std::vector<float> values = noise(count, 1, -1.0F, 1.5F);
  std::vector<float> expected = {fold(values)};
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"values"}, {"result", Type::f32, Access::write}},
                     .scalars = {{"count"}},
                     .shared = std::move(shared),
                     .group_size = {64, 1, 1},
                     .parameters = {{"EACH", "16"}},
                     .source = source},
          .scalars = {count},
          .inputs = {std::move(values)},
          .expected = std::move(expected)};
}

Case histogram(std::string name, std::uint32_t bins) {
  const std::int32_t count = 5000;
  std::vector<std::uint32_t> pixels = noise_bits(count, 1);
  std::vector<std::uint32_t> expected(std::size_t{3} * bins);
  for (const std::uint32_t pixel : pixels)
    for (std::uint32_t channel = 0; channel < 3; ++channel)
      ++expected[channel * bins + (pixel >> channel * 8 & 0xff) * bins / 256];
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"pixels", Type::u32}, {"histogram", Type::u32, Access::read_write}},
                     .scalars = {{"count"}},
                     .shared = {{"bins", Type::u32, {"3 * BINS"}}},
                     .group_size = {64, 1, 1},
                     .parameters = {{"EACH", "4"}, {"BINS", std::to_string(bins)}},
                     .source = histogram_source},
          .groups = {4, 1, 1},
          .scalars = {count},
          .inputs = {std::move(pixels)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> scan_cases() {
  return {scan("scan_inclusive", true), scan("scan_exclusive", false),
          reduce("reduce_sum", sum_source, {{"sums", Type::f32, {"GROUP_X"}}},
                 [](const std::vector<float>& v) {
                   return static_cast<float>(std::accumulate(v.begin(), v.end(), 0.0));
                 }),
          reduce("reduce_argmax", argmax_source,
                 {{"most", Type::f32, {"GROUP_X"}}, {"most_at", Type::i32, {"GROUP_X"}}},
                 [](const std::vector<float>& v) {
                   return static_cast<float>(std::max_element(v.begin(), v.end()) - v.begin());
                 }),
          histogram("histogram_rgb_64", 64)};
}

}  // namespace kiln::cli::demo
