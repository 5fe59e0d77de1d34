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

/// How a group of work items multiplies matrices: it computes a block of `rows` x `columns` from panels of `depth`,
/// each work item `item_rows` x `item_columns` of it.
struct Tile {
  int rows = 32;
  int columns = 32;
  int depth = 8;
  int item_rows = 4;
  int item_columns = 4;
  /// Whether the loop over the depth of a panel is to be unrolled.
  bool unroll = false;
  /// What units that multiply matrices take; f32 is for none.
  Precision precision = Precision::f32;

  std::uint32_t items() const { return static_cast<std::uint32_t>(rows / item_rows * (columns / item_columns)); }
  /// Whether two groups of it at once leave a work item 128 registers, and 64 of them are for its sums.
  bool is_short_of_registers() const { return items() == 256 && item_rows * item_columns == 64; }
  /// Both panels, twice.
  std::uint64_t shared_bytes() const;
  /// As in "tm128_tn128_tk8_rm8_rn8_u", or "tm128_tn128_tk16_tf32".
  std::string name() const;
  bool fits(const DeviceLimits& limits) const;
  /// Whether its numbers go together: work items in rows of 8 or 16 that share the loading of panels evenly.
  bool sound() const;
  /// At most so many steps of loops a work item takes for a tile, of factors that are so deep.
  std::int64_t loop_steps(std::int64_t of_depth) const;
  /// The same, unrolled where that is known to be better: on GPUs.
  Tile on(const DeviceInfo& device) const;
  /// The numbers that tell it from others, as a tuner has them, and the tile that they are of.
  static std::vector<TuneParameter> tunable();
  std::vector<int> numbers() const { return {rows, columns, depth, item_rows, item_columns, unroll ? 1 : 0}; }
  static Tile of(const std::vector<int>& numbers, Precision precision) {
    return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] != 0, precision};
  }

  /// What a kernel that uses tile_source declares.
  std::map<std::string, std::string> parameters() const;
  std::vector<SharedArray> shared() const;
};

/// One that is as large as leaves enough groups to fill the device, for a matrix of `rows` x `columns`, `batch`
/// times.
Tile tile_for(const DeviceInfo& device, std::int64_t rows, std::int64_t columns, std::int64_t batch,
              Precision precision = Precision::f32);

/// What a device has units for, of what a call asks for.
Precision precision_on(const DeviceInfo& device, Precision asked);
/// "", "_tf32" or "_f16".
std::string_view suffix_of(Precision precision);

/// Whether it takes a device long to put single elements into a panel of vectors: the compiler of OpenGL for
/// GPUs makes branches of it.
bool is_slow_to_scatter(const DeviceInfo& device);

/// Macros that multiply panels. The kernel defines FETCH_A(start) and FETCH_B(start), which load what is of the
/// panels that begin at `start` into registers, and STAGE_A(stage), STAGE_B(stage), which put it into panel_a and
/// panel_b. Past the depth they load zeros, past the last row or column anything; they read nothing out of bounds.
///
///     MULTIPLY_PANELS(k)  sums up in `float4 sum[RM][RN / 4]`
///     ITEM_ROW(i), ITEM_COLUMN(j)  where in the tile sum[i][j] belongs
extern const std::string_view tile_source;

}  // namespace kiln::kernels
