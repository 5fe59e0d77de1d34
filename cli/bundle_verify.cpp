#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <sys/stat.h>

#include "base/file_trust.hpp"
#include "bundle.hpp"
#include "quantity.hpp"
#include "sign.hpp"
#include "stop_request.hpp"
#include "store/bundle_layout.hpp"

namespace kiln::cli {
namespace {

struct VerifyBundlesOptions {
  std::vector<std::string> paths = {};
  bool needs_signature = false;
};

/// What is wrong with a bundle.
struct BundleVerdict {
  std::string path = {};
  std::size_t programs = 0;
  /// Each with what it is about; nothing for the whole bundle.
  std::vector<std::pair<std::string, std::string>> problems = {};
  /// The trusted key that signed it; empty if there is none, or if no signature is needed.
  std::string signer = {};
};

BundleVerdict verify_bundle(const std::string& path, const std::optional<store::TrustList>& trust) {
  BundleVerdict verdict{.path = path};
  const auto opened = store::BundleFile::open(path);
  if (!opened) {
    verdict.problems.emplace_back("", opened.error().message());
    return verdict;
  }
  const store::BundleFile& bundle = **opened;
  verdict.programs = bundle.size();
  bundle.verify([&verdict](const std::string& what, const Error& why) {
    verdict.problems.emplace_back(what, why.message());
  });
  if (!trust) return verdict;
  const auto signer = trust->verify(bundle.signatures(), store::signed_bytes_of_bundle(bundle.digest()));
  if (signer)
    verdict.signer = *signer;
  else
    verdict.problems.emplace_back("", fmt::format("{} is not trusted: {}", path, signer.error().message()));
  return verdict;
}

void verify_bundles(Context& context, const VerifyBundlesOptions& options) {
  std::optional<store::TrustList> trust;
  if (options.needs_signature) trust = store::TrustList::read(store::config_folders()).value();
  auto list = Json::array();
  for (const std::string& path : options.paths) {
    const BundleVerdict verdict = verify_bundle(path, trust);
    Json problems = Json::array();
    for (const auto& [what, why] : verdict.problems) {
      context.status = exit_status::failed;
      if (!context.json) complain(what.empty() ? why : fmt::format("{}: {}: {}", path, what, why));
      problems.push_back({{"what", or_null(what)}, {"problem", why}});
    }
    list.push_back({{"file", path},
                    {"ok", verdict.problems.empty()},
                    {"programs", verdict.programs},
                    {"signed_by", or_null(verdict.signer)},
                    {"problems", std::move(problems)}});
    if (!context.json && verdict.problems.empty())
      print(fmt::format("{}: {} checked, all sound{}\n", printable(path), human_count(verdict.programs, "program"),
                        verdict.signer.empty() ? "" : ", signed by " + printable(verdict.signer)));
  }
  if (context.json) print_json(list);
}

struct DiffOptions {
  std::string first = {};
  std::string second = {};
};

void diff_bundles(Context& context, const DiffOptions& options) {
  const auto first = open_bundle(options.first);
  const auto second = open_bundle(options.second);
  using Place = std::pair<Digest, Digest>;
  const auto rows_by_key = [](const store::BundleFile& bundle) {
    std::map<Place, BundleRow> rows;
    for (const BundleRow& row : rows_of(bundle)) rows.emplace(Place(row.target->digest, row.program.key), row);
    return rows;
  };
  const auto rows_of_first = rows_by_key(*first);
  const auto rows_of_second = rows_by_key(*second);
  Json json = {{"only_in_first", Json::array()}, {"only_in_second", Json::array()}, {"different", Json::array()}};
  std::string text;
  const auto found = [&](const char* field, const std::string& what, const store::BundleFile& bundle,
                         const BundleRow& row) {
    context.status = exit_status::failed;
    const std::string target = target_name(row.target->identity);
    const std::string name = read_entry(bundle, row).name();
    json[field].push_back({{"name", or_null(name)}, {"key", row.program.key.hex()}, {"target", target}});
    text += fmt::format("{}: {} {} {}\n", printable(what), name.empty() ? "?" : printable(name), printable(target),
                        row.program.key.hex(shown_key_digits));
  };
  for (const auto& [place, row] : rows_of_first) {
    const auto other = rows_of_second.find(place);
    if (other == rows_of_second.end())
      found("only_in_first", "only in " + options.first, *first, row);
    else if (other->second.program.body != row.program.body)
      found("different", "different", *first, row);
  }
  for (const auto& [place, row] : rows_of_second)
    if (!rows_of_first.contains(place)) found("only_in_second", "only in " + options.second, *second, row);
  if (context.json) return print_json(json);
  print(text.empty() ? fmt::format("both have the same {}\n", human_count(first->size(), "program")) : text);
}

struct SignBundlesOptions {
  std::vector<std::string> paths = {};
  std::string key_file = {};
};

/// Throws Failure if the bundle is damaged, or if other users can write to it.
void check_before_signing(const store::BundleFile& bundle) {
  const std::string& path = bundle.name();
  if (!base::is_trusted_owner(bundle.status()))
    throw Failure(
        Error(ErrorCode::io,
              fmt::format("{} belongs to another user (uid {}), so it is not signed; bake it again, or copy "
                          "it, check the copy and sign that",
                          path, bundle.status().st_uid)));
  if ((bundle.status().st_mode & (S_IWGRP | S_IWOTH)) != 0)
    throw Failure(Error(ErrorCode::io,
                        fmt::format("other users can write to {0}, so it is not signed; bake it again, or check it "
                                    "and fix its permissions with 'chmod go-w {0}'",
                                    path)));
  bundle.verify([&path](const std::string& what, const Error& why) {
    throw Failure(Error(why.code(), fmt::format("{} is not signed: {}: {}", path, what, why.message())));
  });
}

bool is_signed_by_all(const store::BundleFile& bundle, const std::vector<store::SigningKey>& keys) {
  const auto message = store::signed_bytes_of_bundle(bundle.digest());
  return std::ranges::all_of(keys, [&](const store::SigningKey& key) {
    return store::is_signed_by(bundle.signatures(), message, key.public_key()).value();
  });
}

void sign_bundles(Context& context, const SignBundlesOptions& options) {
  const auto keys = chosen_keys(context, options.key_file);
  std::size_t done = 0;
  std::size_t before = 0;
  std::vector<std::string> names;
  for (const auto& key : keys) names.push_back(key.name());
  for (const std::string& path : options.paths) {
    try {
      // One open file is checked and signed, whatever is renamed to this path meanwhile.
      const auto bundle = open_bundle(path);
      check_before_signing(*bundle);
      if (is_signed_by_all(*bundle, keys)) {
        ++before;
        continue;
      }
      const StopRequest stop_request;
      const auto written = store::sign_bundle(*bundle, keys, stop_request.descriptor());
      if (!written && stop_request.happened()) {
        context.status = exit_status::interrupted;
        return complain("interrupted; run the same command again");
      }
      if (!written) throw Failure(written.error());
      ++done;
    } catch (const Failure& failure) {
      complain(failure.what());
      context.status = exit_status::failed;
    }
  }
  if (context.json)
    return print_json({{"keys", names},
                       {"signed", done},
                       {"signed_before", before},
                       {"failed", options.paths.size() - done - before}});
  print(fmt::format("signed {} with {}, {} signed before\n", human_count(done, "bundle"),
                    human_count(keys.size(), "key"), before));
}

}  // namespace

void add_bundle_verify(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("verify", "Compare everything in bundles with its digests");
  auto options = std::make_shared<VerifyBundlesOptions>();
  command->add_option("FILE", options->paths, "The bundles")->required()->type_name("");
  command->add_flag("--signed", options->needs_signature, "Require a signature by a trusted key");
  command->footer(
      "Exits with 1 if a bundle is damaged, or with --signed, if one has no signature by a trusted key.\n"
      "`kiln key ls` lists the trusted keys.\n\n"
      "Examples:\n"
      "  kiln bundle verify app.kiln\n"
      "  kiln bundle verify --signed *.kiln");
  command->callback([&context, options] { verify_bundles(context, *options); });
}

void add_bundle_diff(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("diff", "Compare the programs of two bundles");
  auto options = std::make_shared<DiffOptions>();
  command->add_option("A", options->first, "The first bundle")->required()->type_name("");
  command->add_option("B", options->second, "The second bundle")->required()->type_name("");
  command->footer(
      "Lists the programs that only one has, and those with different bytes for the same target and key.\n"
      "Signatures are not compared. Exits with 1 if the programs differ.");
  command->callback([&context, options] { diff_bundles(context, *options); });
}

void add_bundle_sign(CLI::App& bundle, Context& context) {
  auto* command = bundle.add_subcommand("sign", "Sign bundles, so that applications that trust the key use them");
  auto options = std::make_shared<SignBundlesOptions>();
  command->add_option("--key", options->key_file, "Sign with the private key in this file [all own keys]")
      ->type_name("FILE");
  command->add_option("FILE", options->paths, "The bundles")->required()->type_name("");
  command->footer(
      "A signature says that you trust all programs and requests of the bundle. Each bundle is checked before.\n"
      "Signatures of other keys are kept, and all other bytes stay as they are. Bundles of other users than this\n"
      "one and root, and those that others can write to, are not signed.\n\n"
      "Exits with 1 if a bundle is damaged or cannot be written, and with 130 after Ctrl-C.\n\n"
      "Examples:\n"
      "  kiln bundle sign app.kiln\n"
      "  kiln bundle sign --key ci.key app.kiln");
  command->callback([&context, options] { sign_bundles(context, *options); });
}

}  // namespace kiln::cli
