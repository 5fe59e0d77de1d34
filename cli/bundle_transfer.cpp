#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "bundle.hpp"
#include "quantity.hpp"
#include "store/bundle_transfer.hpp"
#include "transfer.hpp"

namespace kiln::cli {
namespace {

struct BundleTransferOptions {
  std::string file = {};
  std::string url = {};
  std::string name = {};
};

/// The progress in MB, as the bar shows it.
class BytesBar {
 public:
  BytesBar(Context& context, std::string label, std::string what)
      : is_quiet_(context.json), bar_(context.terminal(), label), what_(std::move(what)) {
    if (!is_quiet_) bar_.show(fmt::format("{} {}", label, what_));
  }

  void update(std::uint64_t done, std::uint64_t total) {
    const auto now = Clock::now();
    if (is_quiet_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(50);
    if (!begun_) begun_ = {now, done};
    const auto& [start, before] = *begun_;
    std::optional<std::chrono::nanoseconds> remaining;
    if (now - start >= std::chrono::seconds(1) && done > before)
      remaining = std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::duration<double>(now - start) * static_cast<double>(total - std::min(done, total)) /
          static_cast<double>(done - before));
    constexpr std::uint64_t mega = 1'000'000;
    bar_.update(done / mega, std::max<std::uint64_t>(1, total / mega), "MB of " + what_, remaining);
  }

 private:
  using Clock = std::chrono::steady_clock;

  const bool is_quiet_;
  ProgressBar bar_;
  const std::string what_;
  Clock::time_point next_ = {};
  /// When the first bytes were there, and how many.
  std::optional<std::pair<Clock::time_point, std::uint64_t>> begun_ = {};
};

store::BundlePlace place_of(const BundleTransferOptions& options) {
  const std::filesystem::path file = options.file;
  auto place =
      store::BundlePlace::parse(options.url, options.name.empty() ? file.filename().string() : options.name);
  if (!place) throw UsageError(place.error().message());
  if (place->is_registry() && !options.name.empty())
    throw UsageError("--name is for shared stores; in a registry, the repository and the tag are the name");
  return *std::move(place);
}

using Run = std::function<Result<store::TransferredBundle>(const store::BundlePlace& place,
                                                           const store::BundleTransfer& transfer)>;

/// "push" and "pushed", or "pull" and "pulled".
void transfer_bundle(Context& context, const BundleTransferOptions& options, const std::string& verb,
                     const std::string& participle, const Run& run) {
  const StopRequest stop_request;
  const store::BundlePlace place = place_of(options);
  const auto start = std::chrono::steady_clock::now();
  const auto result = [&] {
    BytesBar bar(context, verb == "push" ? "Pushing" : "Pulling", options.file);
    return run(place, {.interrupted = stop_request.descriptor(),
                       .progress = [&bar](std::uint64_t done, std::uint64_t total) { bar.update(done, total); }});
  }();
  if (!result && stop_request.happened()) {
    context.status = exit_status::interrupted;
    return complain(place.is_registry() && verb == "pull" ? "interrupted; run the same command to go on"
                                                          : "interrupted; run the same command again");
  }
  if (!result) throw Failure(result.error());

  const auto time = std::chrono::steady_clock::now() - start;
  const std::string digest = "sha256:" + result->digest.hex();
  if (context.json) {
    Json object = {{"file", options.file},
                   {"url", place.display()},
                   {"digest", digest},
                   {"bytes", result->size},
                   {"transferred", result->transferred}};
    object["manifest"] = result->manifest ? Json("sha256:" + result->manifest->hex()) : Json(nullptr);
    object["seconds"] = std::chrono::duration<double>(time).count();
    return print_json(object);
  }
  const bool was_there = result->transferred == 0;
  print(fmt::format("{} {} {} {} ({}{}), in {}\n", participle, printable(options.file),
                    verb == "push" ? "to" : "from", printable(place.display()), human_size(result->size),
                    was_there ? ", which was there" : "", human_duration(time)));
  print(fmt::format("bundle    {}\n", digest));
  if (result->manifest) print(fmt::format("manifest  sha256:{}\n", result->manifest->hex()));
}

std::shared_ptr<BundleTransferOptions> add_options(CLI::App& command, const char* file, const char* url) {
  auto options = std::make_shared<BundleTransferOptions>();
  command.add_option("FILE", options->file, file)->required()->type_name("");
  command.add_option("URL", options->url, url)->required()->type_name("");
  command.add_option("--name", options->name, "The name of the bundle in a shared store [the name of the file]")
      ->type_name("NAME");
  return options;
}

}  // namespace

void add_bundle_push(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("push", "Copy a bundle to a registry or a shared store");
  const auto options = add_options(*command, "The bundle",
                                   "Where it goes, as in oci://registry.example/team/app:v1 or file:///mnt/kiln");
  command->footer(
      "Checks the whole bundle before anything is sent. A registry gets an OCI artifact of the type\n"
      "application/vnd.kiln.bundle.v1. Data that the registry already has is not sent again. The credentials are\n"
      "those of `docker login`, in $REGISTRY_AUTH_FILE, $DOCKER_CONFIG/config.json or ~/.docker/config.json. A\n"
      "shared store gets one object, bundles/NAME, of at most 256 MiB.\n\n"
      "Exits with 1 if the bundle is damaged or cannot be sent, and with 130 after Ctrl-C.\n\n"
      "Examples:\n"
      "  kiln bundle push app.kiln oci://registry.example/team/app:v1\n"
      "  kiln bundle push app.kiln oci+http://registry.local:5000/app\n"
      "  kiln bundle push app.kiln redis://cache.example/0 --name app-v1.kiln");
  command->callback([&context, options] {
    transfer_bundle(context, *options, "push", "pushed", [&](const auto& place, const auto& transfer) {
      return store::push_bundle(options->file, place, transfer);
    });
  });
}

void add_bundle_pull(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("pull", "Copy a bundle from a registry or a shared store to a file");
  const auto options =
      add_options(*command, "The file to write or replace",
                  "Where the bundle is, as in oci://registry.example/team/app:v1 or file:///mnt/kiln");
  command->footer(
      "Writes FILE.part, checks it, and renames it. After Ctrl-C or a failure, the same command goes on with\n"
      "FILE.part if the bundle is in a registry that permits it. Signatures are checked when the bundle is "
      "used.\n\n"
      "Exits with 1 if there is no such bundle or if it is damaged, and with 130 after Ctrl-C.\n\n"
      "Examples:\n"
      "  kiln bundle pull app.kiln oci://registry.example/team/app:v1\n"
      "  kiln bundle pull app.kiln oci://registry.example/team/app@sha256:DIGEST\n"
      "  kiln bundle pull app.kiln file:///mnt/kiln");
  command->callback([&context, options] {
    transfer_bundle(context, *options, "pull", "pulled", [&](const auto& place, const auto& transfer) {
      return store::pull_bundle(place, options->file, transfer);
    });
  });
}

}  // namespace kiln::cli
