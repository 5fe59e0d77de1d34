#include "kernels/rows.hpp"

#include <bit>

#include "base/try.hpp"

namespace kiln::kernels {
namespace {

// A group scans a row stretch by stretch and carries the sum along: each work item sums EACH elements, then adds
// the sum of all earlier ones. Nothing is subtracted, so that an infinity does not affect elements before it.
constexpr std::string_view scan_source = R"(#define STRETCH (GROUP_X * EACH)
#define PLACE(i) ((i) + (i) / 32)

KERNEL {
  for (int start = group_id_x * GROUP_Y; start < pieces; start += group_count_x * GROUP_Y) {
    int piece = start + local_id_y;
    int row = piece / chunks;
    // Of several rows in a group, none is divided, so that all have as many stretches.
    int begin = GROUP_Y > 1 ? 0 : (piece - row * chunks) * chunk_width;
    int length = min(width - begin, chunk_width);
    int base = row * width + begin;
    float carry = 0.0f;
    if (has_before != 0 && piece < pieces) carry = before[piece];
    for (int done = 0; done < length; done += STRETCH) {
      for (int i = 0; i < EACH; ++i) {
        int at = i * GROUP_X + local_id_x;
        float value = 0.0f;
        if (piece < pieces && at < length - done) value = values[base + done + at];
        stretch[local_id_y][PLACE(at)] = value;
      }
      group_barrier();
      float sum = 0.0f;
      for (int i = 0; i < EACH; ++i) {
        int at = PLACE(local_id_x * EACH + i);
        float without = sum;
        sum += stretch[local_id_y][at];
        stretch[local_id_y][at] = exclusive != 0 ? without : sum;
      }
      partial[local_id_y][local_id_x] = sum;
      group_barrier();
      for (int far = 1; far < GROUP_X; far <<= 1) {
        float other = 0.0f;
        if (local_id_x >= far) other = partial[local_id_y][local_id_x - far];
        group_barrier();
        partial[local_id_y][local_id_x] += other;
        group_barrier();
      }
      float all_before = carry;
      if (local_id_x > 0) all_before += partial[local_id_y][local_id_x - 1];
      carry += partial[local_id_y][GROUP_X - 1];
      for (int i = 0; i < EACH; ++i) stretch[local_id_y][PLACE(local_id_x * EACH + i)] += all_before;
      group_barrier();
      for (int i = 0; i < EACH; ++i) {
        int at = i * GROUP_X + local_id_x;
        if (piece < pieces && at < length - done) result[base + done + at] = stretch[local_id_y][PLACE(at)];
      }
      group_barrier();
    }
  }
}
)";

ScanVariant variant_for(std::int64_t width) {
  const RowGroup group = width <= 256 ? RowGroup{} : RowGroup{.items = 256, .rows = 1};
  return {.group = group, .each = group.rows > 1 ? 4 : 8};
}

/// Adds a step that scans each chunk of each row, starting from its value in `before`, if given.
void add_scan(Plan& plan, const Rows& rows, const Chunks& chunks, Plan::Place from,
              std::optional<Plan::Place> before, Plan::Place to, bool exclusive) {
  const ScanVariant variant = variant_for(chunks.width);
  const std::int64_t pieces = rows.count * chunks.count;
  const auto count = static_cast<double>(rows.count) * static_cast<double>(rows.width);
  const std::int64_t of_group = quotient_up(pieces, variant.group.rows);
  const std::int64_t each = variant.each;
  const std::int64_t stretches = quotient_up(chunks.width, variant.group.items * each);
  const std::int64_t of_stretch = 4 * (each + 1) + std::int64_t{std::bit_width(variant.group.items)} + 1;
  plan.step(
      scan_kernel(variant), groups_for(of_group), {from, before.value_or(from), to},
      {number(pieces), number(chunks.count), number(rows.width), number(chunks.width), number(before ? 1 : 0),
       number(exclusive ? 1 : 0)},
      {.flops = 2 * count, .bytes = 8 * count, .loop_steps = pieces_each(of_group) * (stretches * of_stretch + 2)});
}

}  // namespace

std::string ScanVariant::name() const { return fmt::format("scan_{}_each{}", group.name(), each); }

Kernel scan_kernel(const ScanVariant& variant) {
  return {.name = variant.name(),
          .buffers = {{"values"}, {"before"}, {"result", Type::f32, Access::write}},
          .scalars = {{"pieces"}, {"chunks"}, {"width"}, {"chunk_width"}, {"has_before"}, {"exclusive"}},
          .shared = {partial_array(), {"stretch", Type::f32, {"GROUP_Y", "(GROUP_X * EACH * 33 / 32)"}}},
          .group_size = variant.group.size(),
          .parameters = {{"EACH", std::to_string(variant.each)}},
          .source = std::string(scan_source)};
}

}  // namespace kiln::kernels

namespace kiln {

Result<Tensor> scan(Runner on, const Tensor& x, const ScanOptions& options) {
  using namespace kernels;
  auto plan = KILN_TRY(Plan::of("scan", on, {{"x", &x}}));
  if (x.shape().empty()) return unfit("scan: x has no dimensions; it must have 1 or more");
  const Rows rows = rows_of(x.shape());
  const Chunks chunks = chunks_for(rows);
  const auto from = plan.read(x);
  const auto to = plan.write(x.shape(), options.output);
  std::optional<Plan::Place> before;
  if (chunks.count > 1) {
    // Sum each chunk, then scan the sums exclusively.
    const auto sums = plan.scratch(rows.count * chunks.count);
    before = plan.scratch(rows.count * chunks.count);
    add_reduce(plan, reduce_variant(plan.device(), rows.width, Reduction::sum), rows, chunks, from, sums, 1);
    const Rows of_sums{.count = rows.count, .width = chunks.count};
    add_scan(plan, of_sums, {.width = of_sums.width}, sums, {}, *before, true);
  }
  add_scan(plan, rows, chunks, from, before, to, options.exclusive);
  return std::move(plan).finish();
}

}  // namespace kiln
