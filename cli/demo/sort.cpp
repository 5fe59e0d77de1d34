#include <algorithm>

#include "case.hpp"

namespace kiln::cli::demo {
namespace {

// A group sorts GROUP_X * 16 numbers: each work item sorts its own 16 in registers with Green's network of 60
// comparisons, then the group merges the runs in shared memory by bitonic merges.
constexpr const char* sort_source =
    R"(#define ORDER(i, j) { uint low = min(v[i], v[j]); v[j] = max(v[i], v[j]); v[i] = low; }

KERNEL {
  int thread = local_id_x;
  int base = group_id_x * COUNT;
  uint v[EACH];
  for (int i = 0; i < EACH; ++i) v[i] = values[base + thread * EACH + i];
  ORDER(0, 1) ORDER(2, 3) ORDER(4, 5) ORDER(6, 7) ORDER(8, 9) ORDER(10, 11) ORDER(12, 13) ORDER(14, 15)
  ORDER(0, 2) ORDER(4, 6) ORDER(8, 10) ORDER(12, 14) ORDER(1, 3) ORDER(5, 7) ORDER(9, 11) ORDER(13, 15)
  ORDER(0, 4) ORDER(8, 12) ORDER(1, 5) ORDER(9, 13) ORDER(2, 6) ORDER(10, 14) ORDER(3, 7) ORDER(11, 15)
  ORDER(0, 8) ORDER(1, 9) ORDER(2, 10) ORDER(3, 11) ORDER(4, 12) ORDER(5, 13) ORDER(6, 14) ORDER(7, 15)
  ORDER(5, 10) ORDER(6, 9) ORDER(3, 12) ORDER(13, 14) ORDER(4, 8) ORDER(7, 11) ORDER(1, 2)
  ORDER(1, 4) ORDER(7, 13) ORDER(2, 8) ORDER(11, 14) ORDER(5, 6) ORDER(9, 10)
  ORDER(2, 4) ORDER(11, 13) ORDER(3, 8) ORDER(7, 12)
  ORDER(6, 8) ORDER(10, 12) ORDER(3, 5) ORDER(7, 9)
  ORDER(3, 4) ORDER(5, 6) ORDER(7, 8) ORDER(9, 10) ORDER(11, 12)
  ORDER(6, 7) ORDER(8, 9)

  // Every second run is reversed, so that two adjacent runs form a bitonic sequence.
  bool turned = (thread & 1) != 0;
  for (int i = 0; i < EACH; ++i) line[thread * EACH + i] = turned ? v[EACH - 1 - i] : v[i];
  group_barrier();

  for (int run = 2 * EACH; run <= COUNT; run <<= 1)
    for (int apart = run >> 1; apart > 0; apart >>= 1) {
      for (int pair = thread; pair < COUNT / 2; pair += GROUP_X) {
        int i = 2 * pair - (pair & (apart - 1));
        int j = i + apart;
        bool rising = (i & run) == 0;
        uint a = line[i];
        uint b = line[j];
        if ((a > b) == rising) {
          line[i] = b;
          line[j] = a;
        }
      }
      group_barrier();
    }
  for (int i = thread; i < COUNT; i += GROUP_X) result[base + i] = line[i];
}
)";

Case bitonic(std::string name, std::uint32_t threads) {
  const std::uint32_t groups = 2;
  std::vector<std::uint32_t> values = noise_bits(std::size_t{groups} * threads * 16, 1);
  std::vector<std::uint32_t> expected = values;
  for (std::uint32_t group = 0; group < groups; ++group) {
    const auto first = expected.begin() + group * threads * 16;
    std::sort(first, first + threads * 16);
  }
  return {.kernel = {.name = std::move(name),
                     .buffers = {{"values", Type::u32}, {"result", Type::u32, Access::write}},
                     .shared = {{"line", Type::u32, {"COUNT"}}},
                     .group_size = {threads, 1, 1},
                     .parameters = {{"EACH", "16"}, {"COUNT", "(GROUP_X * EACH)"}},
                     .source = sort_source},
          .groups = {groups, 1, 1},
          .inputs = {std::move(values)},
          .expected = std::move(expected)};
}

}  // namespace

std::vector<Case> sort_cases() { return {bitonic("bitonic_sort_1024", 64)}; }

}  // namespace kiln::cli::demo
