#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>

#include <sys/stat.h>

#include <fmt/format.h>

#include <kiln/cache.hpp>
#include <kiln/request.hpp>

#include "cache/bundles.hpp"
#include "commands.hpp"
#include "difference.hpp"
#include "inventory.hpp"
#include "quantity.hpp"
#include "shared_answer.hpp"
#include "source_options.hpp"
#include "store/settings.hpp"

namespace kiln::cli {
namespace {

struct WhyOptions {
  std::string file = {};
  SourceOptions source = {};
};

/// The result of looking up the request on this machine.
struct Answer {
  /// Whether the disk has it.
  bool hit = false;
  /// The bundle that has it, if the disk does not; empty if none has it.
  std::string bundle = {};
  /// The file of the entry, which may not exist.
  std::filesystem::path file;
  /// Why the lookup misses.
  std::string reason = {};
};

Answer look_up(const std::filesystem::path& root, const Identity& identity, const Request& request) {
  const auto folder = root / identity.folder();
  const std::string name = store::entry_file_name(request.key());
  Answer answer{.file = folder / name};
  struct stat status {};
  if (identity.formats.empty()) {
    answer.reason = "the driver returns no binaries, so Kiln cannot store its programs on disk";
  } else if (lstat(answer.file.c_str(), &status) != 0) {
    if (errno != ENOENT)
      throw Failure(
          Error(ErrorCode::io, fmt::format("cannot look up {}: {}", answer.file.string(), std::strerror(errno))));
    answer.reason = "no entry with this key is stored for this device";
  } else if (const auto entry = store::read_entry(folder, name); !entry) {
    const bool unreadable = entry.error().code() == ErrorCode::io;
    answer.reason =
        fmt::format("its entry {}: {}", unreadable ? "cannot be read" : "is damaged", entry.error().message());
  } else {
    answer.hit = true;
  }
  return answer;
}

/// The bundle that answers the request; empty if none does.
std::string look_up_in_bundles(const Context& context, const Backend& backend, const Request& request) {
  CacheOptions options;
  options.log = context.log();
  const cache::Bundles bundles(options, store::read_settings(), backend);
  const auto found = bundles.find(request);
  return found.empty() ? "" : found.front().file.name();
}

/// The stored program that is most similar to the request, and the differences.
struct Nearest {
  const StoredProgram* program;
  std::vector<Difference> request;
  std::vector<Difference> identity;

  /// Smaller is nearer. Compares the name first, then the request, the device, and the time of last use.
  auto rank(const Request& wanted) const {
    return std::tuple(program->name() != wanted.name(), request.size(), identity.size(),
                      -program->file.last_use.time_since_epoch().count());
  }
};

std::optional<Nearest> nearest(const Inventory& inventory, const Request& request, const Identity& identity) {
  Json asked = Json::parse(request.describe());
  asked["files"] = Json::parse(request.describe_files());
  std::optional<Nearest> best;
  for (const auto& program : inventory.programs) {
    if (!program.damage.empty()) continue;
    const auto& folder = inventory.folders[program.folder];
    Nearest candidate{&program, request_differences(program.facts, asked), {}};
    if (folder.path.filename() != identity.folder()) {
      if (folder.identity) candidate.identity = identity_differences(*folder.identity, identity);
      if (candidate.identity.empty())
        candidate.identity.push_back(
            {"device", folder.path.filename().string() + " (manifest.json is missing)", identity.folder()});
    }
    if (!best || candidate.rank(request) < best->rank(request)) best = std::move(candidate);
  }
  if (best && best->request.empty() && best->program->file.key.digest != request.key().digest)
    best->request.push_back({"key version", best->program->file.key.digest.hex(12), request.key().digest.hex(12)});
  return best;
}

Json difference_json(const std::vector<Difference>& differences, std::string_view of) {
  auto list = Json::array();
  for (const auto& [field, stored, asked] : differences)
    list.push_back({{"of", of},
                    {"field", field},
                    {"stored", stored ? Json(*stored) : Json(nullptr)},
                    {"asked", asked ? Json(*asked) : Json(nullptr)}});
  return list;
}

bool is_hit(const Answer& answer, const SharedAnswer& shared) {
  return answer.hit || !answer.bundle.empty() || !shared.store.empty();
}

/// The level that answers the request.
std::string level_of(const Answer& answer, const SharedAnswer& shared) {
  if (answer.hit) return "disk";
  if (!answer.bundle.empty()) return "bundle";
  if (!shared.store.empty()) return "shared";
  return store::read_settings().compile.value == CompilePolicy::never ? "none" : "compiler";
}

Json stores_json(const SharedAnswer& shared) {
  auto list = Json::array();
  for (const auto& store : shared.stores)
    list.push_back({{"name", store.name},
                    {"outcome", store.outcome},
                    {"differences", difference_json(store.identity, "identity")}});
  return list;
}

Json answer_json(const Request& request, const Identity& identity, const Answer& answer, const SharedAnswer& shared,
                 const std::optional<Nearest>& near, const Inventory& inventory) {
  Json object = {{"hit", is_hit(answer, shared)},
                 {"level", level_of(answer, shared)},
                 {"bundle", or_null(answer.bundle)},
                 {"store", or_null(shared.store)},
                 {"name", request.name()},
                 {"key", request.key().digest.hex()},
                 {"language", to_string(request.language())},
                 {"entry", request.entries().size() == 1 ? request.entries()[0] : ""},
                 {"entries", request.entries()},
                 {"api", identity.api},
                 {"device", identity.device},
                 {"file", answer.file.string()},
                 {"reason", or_null(answer.reason)},
                 {"stores", stores_json(shared)},
                 {"nearest", nullptr},
                 {"differences", Json::array()}};
  if (!near) return object;
  object["nearest"] = {{"name", near->program->name()},
                       {"key", near->program->file.key.digest.hex()},
                       {"api", or_null(inventory.api(*near->program))},
                       {"folder", inventory.folder_name(*near->program)},
                       {"last_use", iso_time(near->program->file.last_use)}};
  object["differences"] = difference_json(near->request, "key");
  for (auto& difference : difference_json(near->identity, "identity"))
    object["differences"].push_back(std::move(difference));
  return object;
}

std::string answer_text(const Request& request, const Identity& identity, const Answer& answer,
                        const SharedAnswer& shared, const Terminal& terminal) {
  const std::string level = level_of(answer, shared);
  const bool hit = is_hit(answer, shared);
  const std::string verdict =
      hit ? paint("hit", Ink::good, terminal.colors) : paint("miss", Ink::bad, terminal.colors);
  Table fields = Table::of_fields();
  fields.add({"  api", identity.api});
  fields.add({"  device", identity.device});
  fields.add({"  level", level == "bundle"   ? "bundle " + answer.bundle
                         : level == "shared" ? "shared store " + shared.store
                                             : level});
  if (answer.hit) fields.add({"  file", answer.file.string()});
  if (!hit) fields.add({"  reason", answer.reason});
  for (const auto& store : shared.stores) {
    std::string text = store.name + ": " + store.outcome;
    if (!store.identity.empty()) text += "; it has the program for another device:";
    for (const auto& [field, stored, asked] : store.identity)
      text += fmt::format(" {} {}, not {};", field, stored.value_or("(none)"), asked.value_or("(none)"));
    if (text.ends_with(';')) text.pop_back();
    fields.add({"  shared store", text});
  }
  return fmt::format("{}: {} ({})\n", verdict, printable(request.name()), request.key().digest.hex(12)) +
         fields.format(terminal);
}

std::string nearest_text(const Request& request, const Nearest& near, const Inventory& inventory,
                         const Terminal& terminal) {
  const auto& program = *near.program;
  const std::string api = inventory.api(program);
  std::string text = program.name() == request.name()
                         ? "\nThe most similar stored program:\n"
                         : "\nNo program with this name is stored. The most similar stored program:\n";
  Table found = Table::of_fields();
  found.add({"  name", program.name()});
  found.add({"  key", program.file.key.digest.hex(12)});
  found.add({"  api", api.empty() ? "unknown" : api});
  found.add({"  folder", inventory.folder_name(program)});
  found.add({"  used ago", human_age(program.file.last_use, std::chrono::system_clock::now())});
  text += found.format(terminal) + "\n";

  constexpr auto left = Table::Align::left;
  constexpr auto wrapped = Table::Overflow::wrap;
  Table table({{"DIFFERENCE", left, wrapped}, {"STORED", left, wrapped}, {"REQUESTED", left, wrapped}});
  // A new toolkit differs in a thousand headers.
  constexpr std::size_t most = 30;
  std::size_t shown = 0;
  for (const auto* differences : {&near.identity, &near.request})
    for (const auto& [field, stored, asked] : *differences)
      if (shown++ < most)
        table.add({{field, Ink::warning},
                   {stored.value_or("(none)"), stored ? Ink::plain : Ink::faint},
                   {asked.value_or("(none)"), asked ? Ink::plain : Ink::faint}});
  text += table.format(terminal);
  if (shown > most) text += fmt::format("{} more differences; --json lists them all\n", shown - most);
  return text;
}

void run(Context& context, const WhyOptions& options) {
  const auto root = context.directory();
  const Target target = open_target(context, options.source, language_of_file(options.source, options.file));
  const auto request = request_for(options.source, options.file, target.language);
  const Identity& identity = target.backend->identity();
  auto answer = look_up(root, identity, request);
  if (!answer.hit) answer.bundle = look_up_in_bundles(context, *target.backend, request);
  SharedAnswer shared;
  if (!answer.hit && answer.bundle.empty() && !identity.formats.empty())
    shared = ask_shared_stores(context, request, identity);
  for (const auto& problem : shared.problems) complain(problem);
  const bool hit = is_hit(answer, shared);
  Inventory inventory;
  if (!hit) inventory = take_inventory(root);
  for (const auto& problem : inventory.problems) complain(problem);
  const auto near = nearest(inventory, request, identity);

  context.status = hit ? exit_status::ok : exit_status::failed;
  if (context.json) return print_json(answer_json(request, identity, answer, shared, near, inventory));
  const auto terminal = context.terminal();
  print(answer_text(request, identity, answer, shared, terminal));
  if (hit) return;
  // If the entry is damaged, or the driver returns no binaries, another program explains nothing.
  if (near && !(near->request.empty() && near->identity.empty()) && !identity.formats.empty())
    print(nearest_text(request, *near, inventory, terminal));
  if (inventory.programs.empty()) remark(context, fmt::format("No programs are stored in {}.", root.string()));
}

}  // namespace

void add_why(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("why", "Explain why a program is found in the cache or compiled again");
  auto options = std::make_shared<WhyOptions>();
  command->add_option("FILE", options->file, "Source file of the program")->required()->type_name("");
  options->source.add_to(*command, context);
  command->footer(
      "The key of a program consists of its name, source, the files that it can include, defines, options, entry\n"
      "points and language. Give the same values as the application does. For a miss, the command shows the most\n"
      "similar stored program and up to 30 differences, such as the headers that were edited; --json lists all.\n\n"
      "If the disk does not have the program, the command looks into bundles, and asks the shared stores, as a "
      "cache\n"
      "does. The level is the first that has the program: disk, bundle, shared or compiler; or none, if "
      "KILN_COMPILE\n"
      "forbids the compiler. If a store is a folder, the command also shows how another device for which it has "
      "the\n"
      "program differs.\n\n"
      "Exits with 0 for a hit and with 1 for a miss.\n\n"
      "Examples:\n"
      "  kiln why conv2d.comp --device opengl --define TILE=16\n"
      "  kiln why scan.cu --name scan_1024 --entry scan --arch sm_90\n"
      "  kiln why conv2d.cl --device opencl:1 --option -cl-fast-relaxed-math --json");
  command->callback([&context, options] { run(context, *options); });
}

}  // namespace kiln::cli
