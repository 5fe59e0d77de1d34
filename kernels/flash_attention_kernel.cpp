#include "kernels/flash_attention.hpp"

#include <fmt/format.h>

#include "kernels/native.hpp"
#include "kernels/plan.hpp"

namespace kiln::kernels {
namespace {

// Keys and values share one array in shared memory. With ASYNC, the device copies values to a second array while
// the keys are in use, and the weights then replace the keys. Otherwise the weights have their own array. Shared
// memory passes the weights from the work items that compute them to those that need them; a quad holds the weights
// of four queries for one key. The position of a quad depends on its row (XOR swizzle), so that neighbours read
// from different banks without padding.
//
// The order of the keys does not matter (online softmax): weights are relative to the largest score so far, and
// earlier sums are scaled down when a larger score appears. Each work item keeps the total weight of its own keys
// until the end.
//
// With DIVIDED, each part of the keys has its own sums, relative to the part's largest score. `totals` holds that
// score and the total weight for each row, and a second kernel combines the parts.
constexpr std::string_view attention_source = R"(#if DIVIDED
#define TILES tiles * heads * parts
#define FIRST_KEY part * part_keys
#define OUTPUT slice
#else
#define TILES tiles * heads
#define FIRST_KEY 0
#define OUTPUT head
#endif
#define QUADS (HEAD / 4)
#define KEYS_EACH (BK / ACROSS)
#define QUADS_EACH (QUADS / ACROSS)
#define ITEMS (BQ / RQ * ACROSS)
#define NOTHING make_float4(0.0f, 0.0f, 0.0f, 0.0f)
#define FOURS (RQ / 4)
#define TWIST(quads) (((quads) < 16 ? (quads) : 16) - 1)
#define ROW(i) (item_y * RQ + (i))
#define QUERY_PLACE(row, quad) ((row) * QUADS + ((quad) ^ ((row) / RQ & TWIST(QUADS))))
#define PLACE(row, quad) ((row) * QUADS + ((quad) ^ ((row) & TWIST(QUADS))))
#define WEIGHT_PLACE(key, i) ((key) * (BQ / 4) + ((item_y * FOURS + (i)) ^ ((key) & TWIST(BQ / 4))))
// The same places of a work item's own rows, keys and quads, with what does not change in the loops set apart.
#define OWN_QUERY(i, d) (item_y * (RQ * QUADS) + ((d) ^ (item_y & TWIST(QUADS))) + (i) * QUADS)
#define OWN_KEY(j, d) \
  (item_x * QUADS + ((d) ^ ((j) * ACROSS & TWIST(QUADS)) ^ (item_x & TWIST(QUADS))) + (j) * (ACROSS * QUADS))
#define OWN_VALUE(key, j) \
  ((item_x ^ ((key) & TWIST(QUADS) & (ACROSS - 1))) + ((j) * ACROSS ^ ((key) & TWIST(QUADS) & ~(ACROSS - 1))) + \
   (key) * QUADS)
#define OWN_WEIGHT(key, i) \
  ((item_y * FOURS ^ ((key) & TWIST(BQ / 4) & ~(FOURS - 1))) + ((i) ^ ((key) & TWIST(BQ / 4) & (FOURS - 1))) + \
   (key) * (BQ / 4))
#if ASYNC
#define VALUES later
#define WEIGHTS block
#define UNROLL_LOADS _Pragma("unroll 2")
#else
#define VALUES block
#define WEIGHTS weights
#if KILN_CUDA || KILN_HIP
#define UNROLL_LOADS _Pragma("unroll 4")
#elif KILN_VULKAN && UNROLLED > 1
#define UNROLL_LOADS UNROLL
#else
#define UNROLL_LOADS
#endif
#endif
// Four steps; the sum of a dot product and what was there is five.
#define ADD_DOT(sum, a, b) sum = a.x * b.x + (a.y * b.y + (a.z * b.z + (a.w * b.w + sum)))
#if KILN_OPENGL && UNROLLED > 1
#pragma optionNV(unroll all)
#endif
#if UNROLLED == 1 || KILN_OPENGL
#define PARTLY_UNROLL
#elif KILN_VULKAN
#define PARTLY_UNROLL UNROLL
#elif UNROLLED == 2
#define PARTLY_UNROLL _Pragma("unroll 2")
#elif UNROLLED == 4
#define PARTLY_UNROLL _Pragma("unroll 4")
#else
#define PARTLY_UNROLL _Pragma("unroll 16")
#endif
// Where a loop is unrolled whole or not at all, one in another is unrolled partly. In OpenGL, where all are unrolled
// whose count is known, the other has a count that is not, as long as sizes are no constants.
#if (KILN_OPENGL || KILN_VULKAN) && (UNROLLED == 2 || UNROLLED == 4)
#if KILN_OPENGL
#define COUNT_OF(count, needed) (needed)
#else
#define COUNT_OF(count, needed) (count)
#endif
#define PARTLY_UNROLLED_FOR(count, needed) \
  for (int unrolled_from = 0; unrolled_from < COUNT_OF(count, needed); unrolled_from += UNROLLED) \
    UNROLL for (int nth = 0; nth < UNROLLED; ++nth)
#define NTH (unrolled_from + nth)
#else
#define PARTLY_UNROLLED_FOR(count, needed) PARTLY_UNROLL for (int nth = 0; nth < (count); ++nth)
#define NTH nth
#endif
FUNCTION float weight(float score, float most) { return score == -INFINITY ? 0.0f : EXP(score - most); }
#define SUM(a, b) ((a) + (b))

// Makes of the values of all work items of a query that of all. They are neighbours in a warp of NVIDIA's; elsewhere
// the weights' array is free when this is used.
#ifdef OF_NEIGHBOUR
#define FOLD(value, of_two) \
  UNROLL for (int i = 0; i < RQ; ++i) { \
    UNROLL for (int other = ACROSS / 2; other > 0; other >>= 1) \
      value[i] = of_two(value[i], OF_NEIGHBOUR(value[i], other)); \
  }
#else
#define FOLD(value, of_two) \
  group_barrier(); \
  UNROLL for (int i = 0; i < FOURS; ++i) \
    WEIGHTS[WEIGHT_PLACE(item_x, i)] = \
        make_float4(value[4 * i], value[4 * i + 1], value[4 * i + 2], value[4 * i + 3]); \
  group_barrier(); \
  UNROLL for (int i = 0; i < FOURS; ++i) { \
    float4 of_all = WEIGHTS[WEIGHT_PLACE(0, i)]; \
    for (int other = 1; other < ACROSS; ++other) { \
      float4 one = WEIGHTS[WEIGHT_PLACE(other, i)]; \
      of_all = make_float4(of_two(of_all.x, one.x), of_two(of_all.y, one.y), of_two(of_all.z, one.z), \
                           of_two(of_all.w, one.w)); \
    } \
    value[4 * i] = of_all.x; \
    value[4 * i + 1] = of_all.y; \
    value[4 * i + 2] = of_all.z; \
    value[4 * i + 3] = of_all.w; \
  } \
  group_barrier();
#endif

#if VECTORS
#define QUAD_PLACE(row, d) (((row) * dimension + (d)) >> 2)
#if KILN_VULKAN
// Here are registers enough.
#define LOAD_QUAD(into, there, array, row, d) into = LOAD_IF(there, array, QUAD_PLACE(row, d));
#else
#define LOAD_QUAD(into, there, array, row, d) LOAD_QUAD_IF(into, there, array, QUAD_PLACE(row, d))
#endif
#else
#define ONE_OF(array, row, d) LOAD_IF((d) < dimension, array, (row) * dimension + (d))
#define LOAD_QUAD(into, there, array, row, d) { \
    into = NOTHING; \
    if (there) \
      into = make_float4(ONE_OF(array, row, d), ONE_OF(array, row, (d) + 1), ONE_OF(array, row, (d) + 2), \
                         ONE_OF(array, row, (d) + 3)); \
  }
#endif
// Rows first .. first + count of an array. The others up to `height` are zeros, or where that makes no difference,
// the last one again.
#define LOAD(tile, place, height, array, first, count, zeros, factor) \
  UNROLL_LOADS for (int n = 0; n < (height) * QUADS / ITEMS; ++n) { \
    int row = (local_index + n * ITEMS) / QUADS; \
    int quad = (local_index + n * ITEMS) % QUADS; \
    bool there = 4 * quad < dimension && (!(zeros) || row < (count)); \
    float4 value; \
    LOAD_QUAD(value, there, array, (first) + min(row, (count) - 1), 4 * quad) \
    tile[place(row, quad)] = value * (factor); \
  }

#if ASYNC
// The same with zeros, under way until it is waited for; each is a group of its own.
#define START_LOAD(tile, place, height, array, first, count) \
  UNROLL_LOADS for (int n = 0; n < (height) * QUADS / ITEMS; ++n) { \
    int row = (local_index + n * ITEMS) / QUADS; \
    int quad = (local_index + n * ITEMS) % QUADS; \
    bool there = row < (count) && 4 * quad < dimension; \
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"( \
                     (uint)__cvta_generic_to_shared(&tile[place(row, quad)])), \
                 "l"(there ? &array[QUAD_PLACE((first) + row, 4 * quad)] : array), "r"(there ? 16 : 0) \
                 : "memory"); \
  } \
  asm volatile("cp.async.commit_group;" ::: "memory");
#define WAIT_FOR_ALL_BUT(groups) asm volatile("cp.async.wait_group " #groups ";" ::: "memory");
#endif

KERNEL {
  int item_x = local_index % ACROSS;
  int item_y = local_index / ACROSS;
  int tiles = (queries + BQ - 1) / BQ;
  for (int tile = group_id_x; tile < TILES; tile += group_count_x) {
#if DIVIDED
    int slice = tile / tiles;
    int part = slice / heads;
    int head = slice - part * heads;
#else
    int head = tile / tiles;
#endif
    // The last queries see the most keys: they go first.
    int first_query = (tiles - 1 - tile % tiles) * BQ;
    int ahead = causal != 0 ? keys - queries : keys;
    int seen = causal != 0 ? min(keys, first_query + BQ + ahead) : keys;
#if DIVIDED
    seen = min(seen, FIRST_KEY + part_keys);
#endif

    LOAD(query, QUERY_PLACE, BQ, q, head * queries + first_query, queries - first_query, false, scale)
    float4 sum[RQ][QUADS_EACH];
    float most[RQ];
    float total[RQ];
    UNROLL for (int i = 0; i < RQ; ++i) {
      most[i] = -INFINITY;
      total[i] = 0.0f;
      UNROLL for (int j = 0; j < QUADS_EACH; ++j) sum[i][j] = NOTHING;
    }

    for (int first_key = FIRST_KEY; first_key < seen; first_key += BK) {
#if ASYNC
      START_LOAD(block, PLACE, BK, k, head * keys + first_key, keys - first_key)
      START_LOAD(VALUES, PLACE, BK, v, head * keys + first_key, keys - first_key)
      WAIT_FOR_ALL_BUT(1)
#else
      LOAD(block, PLACE, BK, k, head * keys + first_key, keys - first_key, false, 1.0f)
#endif
      group_barrier();
      float score[RQ][KEYS_EACH];
      UNROLL for (int i = 0; i < RQ; ++i) {
        UNROLL for (int j = 0; j < KEYS_EACH; ++j) score[i][j] = 0.0f;
      }
      PARTLY_UNROLLED_FOR(QUADS, (dimension + 3) >> 2) {
        int d = NTH;
        float4 key[KEYS_EACH];
        UNROLL for (int j = 0; j < KEYS_EACH; ++j) key[j] = block[OWN_KEY(j, d)];
        UNROLL for (int i = 0; i < RQ; ++i) {
          float4 of_query = query[OWN_QUERY(i, d)];
          UNROLL for (int j = 0; j < KEYS_EACH; ++j) ADD_DOT(score[i][j], of_query, key[j]);
        }
      }
      float larger[RQ];
      UNROLL for (int i = 0; i < RQ; ++i) {
        larger[i] = most[i];
        int last = causal != 0 ? min(first_query + ROW(i) + ahead, keys - 1) : keys - 1;
        UNROLL for (int j = 0; j < KEYS_EACH; ++j) {
          if (first_key + item_x + j * ACROSS > last) score[i][j] = -INFINITY;
          larger[i] = fmax(larger[i], score[i][j]);
        }
      }
      FOLD(larger, fmax)
      UNROLL for (int i = 0; i < RQ; ++i) {
        float finite = larger[i] == -INFINITY ? 0.0f : larger[i];
        float keep = weight(most[i], finite);
        most[i] = larger[i];
        total[i] *= keep;
        UNROLL for (int j = 0; j < QUADS_EACH; ++j) sum[i][j] *= keep;
        UNROLL for (int j = 0; j < KEYS_EACH; ++j) {
          score[i][j] = weight(score[i][j], finite);
          total[i] += score[i][j];
        }
      }
#if ASYNC
      group_barrier();
#endif
      UNROLL for (int j = 0; j < KEYS_EACH; ++j) {
        UNROLL for (int i = 0; i < FOURS; ++i)
          WEIGHTS[WEIGHT_PLACE(item_x + j * ACROSS, i)] =
              make_float4(score[4 * i][j], score[4 * i + 1][j], score[4 * i + 2][j], score[4 * i + 3][j]);
      }
#if ASYNC
      WAIT_FOR_ALL_BUT(0)
#else
      group_barrier();
      LOAD(VALUES, PLACE, BK, v, head * keys + first_key, keys - first_key, true, 1.0f)
#endif
      group_barrier();
      PARTLY_UNROLLED_FOR(BK, min(BK, keys - first_key)) {
        int key = NTH;
        float4 value[QUADS_EACH];
        UNROLL for (int j = 0; j < QUADS_EACH; ++j) value[j] = VALUES[OWN_VALUE(key, j)];
        UNROLL for (int i = 0; i < FOURS; ++i) {
          float4 by = WEIGHTS[OWN_WEIGHT(key, i)];
          UNROLL for (int j = 0; j < QUADS_EACH; ++j) {
            sum[4 * i][j] += by.x * value[j];
            sum[4 * i + 1][j] += by.y * value[j];
            sum[4 * i + 2][j] += by.z * value[j];
            sum[4 * i + 3][j] += by.w * value[j];
          }
        }
      }
      group_barrier();
    }

    FOLD(total, SUM)
    UNROLL for (int i = 0; i < RQ; ++i) {
      int row = first_query + ROW(i);
#if !DIVIDED
      float inverse = total[i] == 0.0f ? 0.0f : 1.0f / total[i];
#endif
      if (row < queries) {
#if DIVIDED
        if (item_x == 0) {
          totals[2 * (slice * queries + row)] = most[i];
          totals[2 * (slice * queries + row) + 1] = total[i];
        }
#endif
        UNROLL for (int j = 0; j < QUADS_EACH; ++j) {
          int d = 4 * (item_x + j * ACROSS);
          int at = (OUTPUT * queries + row) * dimension + d;
#if DIVIDED
          float4 value = sum[i][j];
#else
          float4 value = sum[i][j] * inverse;
#endif
#if VECTORS
          if (d < dimension) result[at >> 2] = value;
#else
          if (d < dimension) result[at] = value.x;
          if (d + 1 < dimension) result[at + 1] = value.y;
          if (d + 2 < dimension) result[at + 2] = value.z;
          if (d + 3 < dimension) result[at + 3] = value.w;
#endif
        }
      }
    }
    group_barrier();
  }
}
)";

}  // namespace

std::uint64_t FlashAttentionVariant::shared_bytes() const {
  const int third = asynchronous ? head * keys : queries * keys;
  return static_cast<std::uint64_t>(head * (queries + keys) + third) * sizeof(float);
}

std::string FlashAttentionVariant::name() const {
  return fmt::format("flash_attention_d{}_q{}_k{}_r{}_x{}{}{}{}{}", head, queries, keys, item_queries, across,
                     vectors ? "_v4" : "", asynchronous ? "_async" : "",
                     unroll > 1 ? fmt::format("_u{}", unroll) : "",
                     min_groups > 0 ? fmt::format("_b{}", min_groups) : "");
}

std::int64_t FlashAttentionVariant::loop_steps(std::int64_t blocks) const {
  // Each loop counts one more iteration for its exit test. Loops over register arrays are always unrolled.
  const int quads = head / 4;
  const auto load = [&](int rows) { return rows * quads / static_cast<int>(items()) + 1; };
  const auto partly_unrolled = [this](int count) {
    return unroll == 2 || unroll == 4 ? count / unroll * (unroll + 2) + 1 : count + 1;
  };
  const int fold = item_queries / 4 * across;
  const int block = 1 + load(keys) + partly_unrolled(quads) + fold + load(keys) + partly_unrolled(keys);
  return blocks * block + load(queries) + fold + 2;
}

Kernel flash_attention_kernel(const FlashAttentionVariant& variant, bool divided) {
  const Type type = variant.vectors ? Type::f32x4 : Type::f32;
  const SharedArray third = variant.asynchronous ? SharedArray{"later", Type::f32x4, {"(BK * HEAD / 4)"}}
                                                 : SharedArray{"weights", Type::f32x4, {"(BQ * BK / 4)"}};
  Kernel kernel{
      .name = variant.name() + (divided ? "_parts" : ""),
      .buffers = {{"q", type}, {"k", type}, {"v", type}, {"result", type, Access::write}},
      .scalars = {{"heads"}, {"queries"}, {"keys"}, {"dimension"}, {"causal"}, {"scale", Type::f32}},
      .shared = {{"query", Type::f32x4, {"(BQ * HEAD / 4)"}}, {"block", Type::f32x4, {"(BK * HEAD / 4)"}}, third},
      .group_size = {variant.items(), 1, 1},
      .min_groups = static_cast<std::uint32_t>(variant.min_groups),
      .parameters = {{"HEAD", std::to_string(variant.head)},
                     {"BQ", std::to_string(variant.queries)},
                     {"BK", std::to_string(variant.keys)},
                     {"RQ", std::to_string(variant.item_queries)},
                     {"ACROSS", std::to_string(variant.across)},
                     {"VECTORS", flag(variant.vectors)},
                     {"UNROLLED", std::to_string(variant.unroll)},
                     {"ASYNC", flag(variant.asynchronous)},
                     {"DIVIDED", flag(divided)}},
      .source = std::string(native_source) + std::string(attention_source)};
  if (divided) {
    kernel.buffers.push_back({"totals", Type::f32, Access::write});
    kernel.scalars.insert(kernel.scalars.end(), {{"parts"}, {"part_keys"}});
  }
  return kernel;
}

}  // namespace kiln::kernels
