#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/device.hpp>
#include <kiln/kernel.hpp>
#include <kiln/kernels/kernels.hpp>
#include <kiln/kernels/tuner.hpp>

namespace kiln::kernels {

/// How a group multiplies matrices: it computes a block of `rows` x `columns` from panels of `depth`; each work
/// item computes `item_rows` x `item_columns` of the block.
struct Tile {
  int rows = 32;
  int columns = 32;
  int depth = 8;
  int item_rows = 4;
  int item_columns = 4;
  /// Whether to unroll the loop over the depth of a panel.
  bool unroll = false;
  /// The input precision of the tensor cores; f32 does not use them.
  Precision precision = Precision::f32;

  std::uint32_t items() const { return static_cast<std::uint32_t>(rows / item_rows * (columns / item_columns)); }
  /// Whether the sums take 64 of the 128 registers that a work item has if two groups run at once.
  bool is_short_of_registers() const { return items() == 256 && item_rows * item_columns == 64; }
  /// Both panels, double-buffered.
  std::uint64_t shared_bytes() const;
  /// For example "tm128_tn128_tk8_rm8_rn8_u" or "tm128_tn128_tk16_tf32".
  std::string name() const;
  bool fits(const DeviceLimits& limits) const;
  /// Whether the parameters are consistent: rows of 8 or 16 work items that share the loading of panels evenly.
  bool sound() const;
  /// An upper bound for the loop iterations of a work item per tile, for factors of this depth.
  std::int64_t loop_steps(std::int64_t of_depth) const;
  /// The same tile, unrolled on GPUs, where that is faster.
  Tile on(const DeviceInfo& device) const;
  /// The tuning parameters of a tile, their values, and the tile with given values.
  static std::vector<TuneParameter> tunable();
  std::vector<int> numbers() const { return {rows, columns, depth, item_rows, item_columns, unroll ? 1 : 0}; }
  static Tile of(const std::vector<int>& numbers, Precision precision) {
    return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] != 0, precision};
  }

  /// The declarations of a kernel that uses tile_source.
  std::map<std::string, std::string> parameters() const;
  std::vector<SharedArray> shared() const;
};

/// The largest tile that leaves enough groups to fill the device, for `batch` matrices of `rows` x `columns`.
Tile tile_for(const DeviceInfo& device, std::int64_t rows, std::int64_t columns, std::int64_t batch,
              Precision precision = Precision::f32);

/// The requested precision if the device supports it; f32 otherwise.
Precision precision_on(const DeviceInfo& device, Precision asked);
/// "", "_tf32" or "_f16".
std::string_view suffix_of(Precision precision);

/// Whether stores of single elements to a panel of vectors are slow: OpenGL compilers for GPUs turn them into
/// branches.
bool is_slow_to_scatter(const DeviceInfo& device);

/// Macros that multiply panels. The kernel defines FETCH_A(start) and FETCH_B(start), which load this work item's
/// elements of the panels at depth `start` into registers, and STAGE_A(stage) and STAGE_B(stage), which store them
/// to panel_a and panel_b. Past the depth they load zeros; past the last row or column they load any values. They
/// never read out of bounds.
///
///     MULTIPLY_PANELS(k)  accumulates into `float4 sum[RM][RN / 4]`
///     ITEM_ROW(i), ITEM_COLUMN(j)  the position of sum[i][j] in the tile
extern const std::string_view tile_source;

}  // namespace kiln::kernels
