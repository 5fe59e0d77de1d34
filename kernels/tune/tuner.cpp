#include <utility>

#include "base/try.hpp"
#include "kernels/tune/auto_tuner.hpp"

namespace kiln {

Result<std::unique_ptr<Tuner>> Tuner::create(std::shared_ptr<Device> device, Cache& cache, TuneOptions options) {
  auto tuner = std::make_shared<tune::AutoTuner>(std::move(device), cache, std::move(options));
  KILN_TRY(tuner->start());
  return std::unique_ptr<Tuner>(new Tuner(std::move(tuner)));
}

Tuner::~Tuner() { tuner_->end(); }

Variant Tuner::choose(const Tunable& tunable) {
  std::vector<std::int64_t> sizes;
  for (const TuneSize& size : tunable.sizes) sizes.push_back(size.value);
  return tuner_->choose(tunable.kernel, tunable.types, sizes, [&tunable] { return tunable; });
}

Variant Tuner::choose(std::string_view kernel, std::span<const std::int64_t> sizes,
                      const std::function<Tunable()>& describe, std::string_view types) {
  return tuner_->choose(kernel, types, sizes, describe);
}

std::function<void(const JobReport&)> Tuner::watch(std::string_view kernel, std::span<const std::int64_t> sizes,
                                                   const Variant& variant, std::string_view types) {
  return tuner_->watch(kernel, types, sizes, variant);
}

Result<TuneRecord> Tuner::tune(const Tunable& tunable, std::chrono::nanoseconds budget,
                               const std::function<bool(const TuneProgress&)>& progress) {
  return tuner_->tune(tunable, budget, progress);
}

Result<void> Tuner::saved() const { return tuner_->saved(); }
std::vector<TuneRecord> Tuner::records() const { return tuner_->records(); }
Result<void> Tuner::export_to(const std::filesystem::path& file) const { return tuner_->export_to(file); }
Result<std::size_t> Tuner::import_from(const std::filesystem::path& file) { return tuner_->import_from(file); }
void Tuner::drain() { tuner_->drain(); }
Device& Tuner::device() const noexcept { return tuner_->device(); }
Cache& Tuner::cache() const noexcept { return tuner_->cache(); }
const TuneOptions& Tuner::options() const noexcept { return tuner_->options(); }

}  // namespace kiln
