#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <kiln/identity.hpp>

#include "context.hpp"
#include "store/bundle.hpp"

/// What the subcommands of `kiln bundle` share.
namespace kiln::cli {

using OpenBundle = std::shared_ptr<const store::BundleFile>;

/// Throws Failure.
OpenBundle open_bundle(const std::string& path);

/// A row of the index, with its target.
struct BundleRow {
  std::size_t place = 0;
  const store::BundledTarget* target = nullptr;
  store::BundledProgram program = {};
};

/// In the order of the index. The bundle must outlive them.
std::vector<BundleRow> rows_of(const store::BundleFile& bundle);

/// Request::digest_without_toolkit() of the programs that have one, by their places.
std::map<std::size_t, Digest> digests_by_place(const store::BundleFile& bundle);

/// A program with the data of its entry, without the binary.
struct BundleEntry {
  BundleRow row = {};
  const Identity* identity = nullptr;
  /// Why the entry cannot be used; empty if it can. The members below are set only if this is empty.
  std::string damage = {};
  std::chrono::nanoseconds compile_time = {};
  std::chrono::system_clock::time_point created = {};
  /// Request::describe() as a JSON object; empty if the entry has none.
  Json facts = Json::object();
  struct Part {
    std::string name = {};
    std::uint32_t format = 0;
    std::uint64_t bytes = 0;
  };
  std::vector<Part> parts = {};
  std::vector<std::string> signers = {};

  /// The name of the program; empty if it is not known.
  std::string name() const;
};

BundleEntry read_entry(const store::BundleFile& bundle, const BundleRow& row);
/// read_entry() for each, on all processors.
std::vector<BundleEntry> read_entries(const store::BundleFile& bundle, const std::vector<BundleRow>& rows);

/// As `kiln bake` names targets: "cuda:sm_90", "vulkan" for portable SPIR-V, and API:DEVICE for others.
std::string target_name(const Identity& target);

/// The program for messages: its name if it can be read, and its key.
std::string program_text(const store::BundleFile& bundle, const BundleRow& row);

/// How many digits of a key are shown, and the least that select programs.
inline constexpr std::size_t shown_key_digits = 12;
inline constexpr std::size_t least_key_digits = 4;

/// Whether a name or the first digits of a key, as the user typed them, select a program.
bool is_selected_by(std::string_view wanted, const Digest& key, std::string_view name);

/// The subcommands. Each function adds its own to `kiln bundle`.
void add_bundle_diff(CLI::App& bundle, Context& context);
void add_bundle_ls(CLI::App& bundle, Context& context);
void add_bundle_merge(CLI::App& bundle, Context& context);
void add_bundle_pull(CLI::App& bundle, Context& context);
void add_bundle_push(CLI::App& bundle, Context& context);
void add_bundle_show(CLI::App& bundle, Context& context);
void add_bundle_sign(CLI::App& bundle, Context& context);
void add_bundle_split(CLI::App& bundle, Context& context);
void add_bundle_verify(CLI::App& bundle, Context& context);

}  // namespace kiln::cli
