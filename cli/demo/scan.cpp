#include <algorithm>
#include <numeric>

#include "kernel.hpp"

namespace kiln::cli::demo {
namespace {

// A group scans THREADS * EACH elements: every thread its own, then all of them the threads' sums.
constexpr const char* scan_source = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer Input { uint values[]; };
layout(std430, binding = 1) writeonly buffer Output { uint result[]; };
layout(std140, binding = 0) uniform Parameters { int count; };

shared uint sums[THREADS];

void main() {
  int thread = int(gl_LocalInvocationID.x);
  int base = (int(gl_WorkGroupID.x) * THREADS + thread) * EACH;
  uint v[EACH];
  for (int i = 0; i < EACH; ++i) v[i] = base + i < count ? values[base + i] : 0u;
  for (int i = 1; i < EACH; ++i) v[i] += v[i - 1];

  uint sum = v[EACH - 1];
  sums[thread] = sum;
  barrier();
  for (int step = 1; step < THREADS; step <<= 1) {
    uint before = thread >= step ? sums[thread - step] : 0u;
    barrier();
    sum += before;
    sums[thread] = sum;
    barrier();
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

// One group folds everything: its threads stride over the input EACH elements at a time, then fold in pairs.
constexpr const char* reduce_source = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer Input { float values[]; };
layout(std430, binding = 1) writeonly buffer Output { float result[]; };
layout(std140, binding = 0) uniform Parameters { int count; };

struct Item {
  float value;
  int at;
};
shared Item items[THREADS];

#if ARGMAX
Item fold(Item a, Item b) {
  bool first = a.value > b.value || a.value == b.value && a.at < b.at;
  return Item(first ? a.value : b.value, first ? a.at : b.at);
}
const Item NEUTRAL = Item(-1e38, 0x7fffffff);
#else
Item fold(Item a, Item b) { return Item(a.value + b.value, 0); }
const Item NEUTRAL = Item(0.0, 0);
#endif

void main() {
  int thread = int(gl_LocalInvocationID.x);
  Item mine = NEUTRAL;
  for (int start = thread; start < count; start += THREADS * EACH) {
    Item some[EACH];
    for (int i = 0; i < EACH; ++i) {
      int at = start + i * THREADS;
      some[i] = NEUTRAL;
      if (at < count) some[i] = Item(values[at], at);
    }
    for (int i = 0; i < EACH; ++i) mine = fold(mine, some[i]);
  }
  items[thread] = mine;
  for (int other = THREADS / 2; other > 0; other >>= 1) {
    barrier();
    if (thread < other) items[thread] = fold(items[thread], items[thread + other]);
  }
  if (thread == 0) result[0] = ARGMAX != 0 ? float(items[0].at) : items[0].value;
}
)";

// Counts in shared memory first, so that few of the atomics go to global memory.
constexpr const char* histogram_source = R"(#version 430
layout(local_size_x = THREADS) in;
layout(std430, binding = 0) readonly buffer Input { uint pixels[]; };
layout(std430, binding = 1) buffer Output { uint histogram[]; };
layout(std140, binding = 0) uniform Parameters { int count; };

shared uint bins[3 * BINS];

void main() {
  int thread = int(gl_LocalInvocationID.x);
  for (int i = thread; i < 3 * BINS; i += THREADS) bins[i] = 0u;
  barrier();
  int stride = int(gl_NumWorkGroups.x) * THREADS;
  for (int start = int(gl_GlobalInvocationID.x); start < count; start += stride * EACH)
    for (int i = 0; i < EACH; ++i) {
      int at = start + i * stride;
      if (at >= count) break;
      uint pixel = pixels[at];
      for (int channel = 0; channel < 3; ++channel) {
        uint level = bitfieldExtract(pixel, channel * 8, 8);
        atomicAdd(bins[channel * BINS + int(level) * BINS / 256], 1u);
      }
    }
  barrier();
  for (int i = thread; i < 3 * BINS; i += THREADS)
    if (bins[i] != 0u) atomicAdd(histogram[i], bins[i]);
}
)";

Kernel scan(std::string name, bool inclusive) {
  constexpr std::size_t block = 32 * 16;
  const int count = 3 * block - 5;
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
  return {
      .request = Request({.name = std::move(name),
                          .source = scan_source,
                          .defines = {{"THREADS", "32"}, {"EACH", "16"}, {"INCLUSIVE", inclusive ? "1" : "0"}}}),
      .groups = {3, 1, 1},
      .parameters = bytes_of(count),
      .inputs = {std::move(values)},
      .expected = std::move(expected)};
}

Kernel reduce(std::string name, bool argmax, float (*fold)(const std::vector<float>&)) {
  const int count = 4000;
  std::vector<float> values = noise(count, 1, -1.0F, 1.5F);
  std::vector<float> expected = {fold(values)};
  return {.request = Request({.name = std::move(name),
                              .source = reduce_source,
                              .defines = {{"ARGMAX", argmax ? "1" : "0"}, {"THREADS", "64"}, {"EACH", "16"}}}),
          .parameters = bytes_of(count),
          .inputs = {std::move(values)},
          .expected = std::move(expected)};
}

Kernel histogram(std::string name, std::uint32_t bins) {
  const int count = 5000;
  std::vector<std::uint32_t> pixels = noise_bits(count, 1);
  std::vector<std::uint32_t> expected(std::size_t{3} * bins);
  for (const std::uint32_t pixel : pixels)
    for (std::uint32_t channel = 0; channel < 3; ++channel)
      ++expected[channel * bins + (pixel >> channel * 8 & 0xff) * bins / 256];
  return {.request = Request({.name = std::move(name),
                              .source = histogram_source,
                              .defines = {{"THREADS", "64"}, {"EACH", "4"}, {"BINS", std::to_string(bins)}}}),
          .groups = {4, 1, 1},
          .parameters = bytes_of(count),
          .inputs = {std::move(pixels)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Kernel> scan_kernels() {
  return {scan("scan_inclusive", true), scan("scan_exclusive", false),
          reduce("reduce_sum", false,
                 [](const std::vector<float>& v) {
                   return static_cast<float>(std::accumulate(v.begin(), v.end(), 0.0));
                 }),
          reduce("reduce_argmax", true,
                 [](const std::vector<float>& v) {
                   return static_cast<float>(std::max_element(v.begin(), v.end()) - v.begin());
                 }),
          histogram("histogram_rgb_64", 64)};
}

}  // namespace kiln::cli::demo
